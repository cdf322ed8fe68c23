package agentsfile

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"

	"github.com/turnpool/turnpool/agent"
)

// Options say what a file may use.
type Options struct {
	// Getenv looks a variable up, as [os.LookupEnv] does. Nil: none is set.
	Getenv func(name string) (value string, ok bool)
	// Model makes the model of an agent; it is asked for every provider but
	// script. Its error is shown beside the agent's model. Nil: there is no other
	// provider.
	Model func(ref ModelRef) (agent.Model, error)
	// AllowPrivate lets HTTP tools that do not say otherwise use addresses that
	// are not public.
	AllowPrivate bool
}

// ModelRef is what an agent says of its model.
type ModelRef struct {
	// Provider and Name are the two sides of the first "/".
	Provider, Name string
	// API is responses or chat, or empty if the agent does not say.
	API string
	// Agent is the agent's name.
	Agent string
	// File and Line are where the model is named.
	File string
	Line int
}

// File is an agents file that was read.
type File struct {
	// Name is the file's, as it was given.
	Name string
	// Agents are those of the file, in its order; the first is the default.
	Agents []*agent.Agent
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema of the file, for editors. It is draft 2020-12.
// It finds most mistakes that Parse finds, but not those that take more than one
// place to see, such as a script that is not there.
func Schema() []byte { return bytes.Clone(schema) }

// Load reads the file at path. See [Parse].
func Load(path string, opts Options) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("agents file: %w", err)
	}
	return Parse(path, data, opts)
}

// Parse reads a file from memory; its name is for errors. What is wrong with it
// is an [Errors], with everything that is wrong, in the file's order; no agents
// come then. It calls no model and asks no host. It keeps no state, and may be
// called again with the same file, whose agents are then new ones.
func Parse(name string, data []byte, opts Options) (*File, error) {
	d := newDecoder(name, opts.Getenv)
	var doc document
	if root, err := parse(name, data); err != nil {
		return nil, Errors{err}
	} else if d.root(root, &doc) {
		b := builder{decoder: d, opts: opts}
		if agents := b.build(&doc); len(d.errs) == 0 {
			return &File{Name: name, Agents: agents}, nil
		}
	}
	return nil, d.errs.sorted()
}
