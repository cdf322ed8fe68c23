package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agentsfile"
)

// agentsCommand has what helps to write an agents file.
type agentsCommand struct {
	Check  agentsCheckCommand  `cmd:"" help:"Check an agents file, and show what it has. No model is called, and no key is needed."`
	Schema agentsSchemaCommand `cmd:"" help:"Print the JSON schema of agents files, for editors."`
}

// agentsCheckCommand reads a file as a worker would, with the variables of this
// environment.
type agentsCheckCommand struct {
	File string `arg:"" help:"The agents file."`
}

// Run prints what the file has, or every mistake in it, one a line.
func (c *agentsCheckCommand) Run(out output) error {
	file, err := agentsfile.Load(c.File, agentsfile.Options{
		Getenv: os.LookupEnv, Model: modelByForm,
		AllowPrivate: true, // whether the worker does is its own setting
	})
	var mistakes agentsfile.Errors
	if errors.As(err, &mistakes) {
		fmt.Fprintln(out.stderr, mistakes)
		return fmt.Errorf("%s: %s", c.File, count(len(mistakes), "mistake"))
	}
	if err != nil {
		return err
	}
	tools := 0
	for _, a := range file.Agents {
		tools += len(a.Tools)
	}
	fmt.Fprintf(out.stdout, "%s: %s, %s: ok\n", c.File, count(len(file.Agents), "agent"), count(tools, "tool"))
	for _, a := range file.Agents {
		fmt.Fprintf(out.stdout, "  %s: %s; %s\n", a.Name, a.Model.Name(), toolList(a.Tools))
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// toolList names the tools, and says which of them stop the turn to ask.
func toolList(tools []*agent.Tool) string {
	if len(tools) == 0 {
		return "no tools"
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
		if t.Yields != nil {
			names[i] += " (yields)"
		}
	}
	return "tools: " + strings.Join(names, ", ")
}

// formalModel is a model of a provider that is not asked: it has a name, and is
// never run.
type formalModel struct {
	agent.Model
	name string
}

func (m formalModel) Name() string { return m.name }

// modelByForm accepts a model by how it is written.
func modelByForm(ref agentsfile.ModelRef) (agent.Model, error) {
	if ref.Provider != "openai" {
		return nil, fmt.Errorf("there is no provider %q; want openai/<model>, or script/<name> of this file's scripts", ref.Provider)
	}
	return formalModel{name: ref.Provider + "/" + ref.Name}, nil
}

// agentsSchemaCommand prints the schema.
type agentsSchemaCommand struct{}

// Run prints the schema as it is.
func (*agentsSchemaCommand) Run(out output) error {
	_, err := out.stdout.Write(agentsfile.Schema())
	return err
}
