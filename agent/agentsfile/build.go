package agentsfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/httptool"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/turn"
)

// builder makes agents of a document. It goes on after a mistake, as the decoder
// does; what it returns is only of use if there was none.
type builder struct {
	*decoder
	opts    Options
	scripts map[string]*script.Model
}

const noAgents = "there is none; want a list of at least one"

func (b *builder) build(doc *document) (agents []*agent.Agent) {
	b.buildScripts(doc.Scripts)
	if len(doc.Agents) == 0 && !b.bad["agents"] {
		b.fault("agents", noAgents)
	}
	names := map[string]string{}
	for i, each := range doc.Agents {
		if path := fmt.Sprintf("agents[%d]", i); each != nil && !b.bad[path] {
			b.name(path, each.Name, names)
			agents = append(agents, b.agent(path, each))
		}
	}
	return agents
}

// name checks a name, and that nobody before has it. Seen are the names before,
// with their paths.
func (b *builder) name(path, name string, seen map[string]string) {
	at := join(path, "name")
	shown := b.asWritten(at, name)
	switch {
	case b.bad[at]:
	case !b.has(at):
		b.fault(at, "it is missing; want 1 to 64 letters, digits, _ or -")
	case !turn.ValidName(name):
		b.fault(at, "%q is no name; want 1 to 64 letters, digits, _ or -", clip(shown))
	case seen[name] != "":
		b.fault(at, "%q is the name of %s already", shown, seen[name])
	default:
		seen[name] = path
	}
}

func (b *builder) agent(path string, doc *agentDoc) *agent.Agent {
	for field, value := range map[string]time.Duration{"maxDuration": doc.MaxDuration, "toolTimeout": doc.ToolTimeout} {
		b.positive(join(path, field), value)
	}
	if at := join(path, "maxSteps"); b.has(at) && !b.bad[at] && doc.MaxSteps < 1 {
		b.fault(at, "%d is too few; want 1 or more", doc.MaxSteps)
	}
	return &agent.Agent{
		Name: doc.Name, Description: doc.Description, Instructions: doc.Instructions,
		Model: b.model(path, doc), Tools: b.tools(join(path, "tools"), doc),
		MaxSteps: doc.MaxSteps, MaxDuration: doc.MaxDuration, ToolTimeout: doc.ToolTimeout,
		Sequential: doc.Sequential,
	}
}

func (b *builder) positive(path string, value time.Duration) {
	if b.has(path) && !b.bad[path] && value <= 0 {
		b.fault(path, "%s is no time; want a duration above 0, such as 30s", b.asWritten(path, value.String()))
	}
}

const wantModel = "want openai/<model>, or script/<name> of this file's scripts"

// model returns the model of an agent, nil if there is something wrong with it.
func (b *builder) model(path string, doc *agentDoc) agent.Model {
	if at := join(path, "api"); b.has(at) && !b.bad[at] && doc.API != "responses" && doc.API != "chat" {
		b.fault(at, "%q is no API; want responses or chat", clip(b.asWritten(at, doc.API)))
	}
	at := join(path, "model")
	provider, name, _ := strings.Cut(doc.Model, "/")
	switch {
	case b.bad[at]:
	case !b.has(at):
		b.fault(at, "it is missing; %s", wantModel)
	case provider == "" || name == "":
		b.fault(at, "%q is no model; %s", clip(b.asWritten(at, doc.Model)), wantModel)
	case provider == "script":
		return b.script(at, name)
	case b.opts.Model == nil:
		b.fault(at, "%q is no model; want script/<name> of this file's scripts", clip(b.asWritten(at, doc.Model)))
	case !b.bad[join(path, "api")]:
		return b.resolveModel(at, ModelRef{Provider: provider, Name: name, API: doc.API, Agent: doc.Name})
	}
	return nil
}

func (b *builder) resolveModel(path string, ref ModelRef) agent.Model {
	ref.File, ref.Line = b.file, b.places[path].line
	model, err := b.opts.Model(ref)
	if err == nil && model == nil {
		err = errors.New("it has no model")
	}
	if err != nil {
		b.fault(path, "%s", b.withoutSecrets(err.Error()))
		return nil
	}
	return model
}

// script returns the model of a script.
func (b *builder) script(path, name string) agent.Model {
	model, ok := b.scripts[name]
	if !ok {
		shown := strings.TrimPrefix(b.asWritten(path, "script/"+name), "script/")
		b.fault(path, "%s", unknown(fmt.Sprintf("there is no script %q in this file", clip(shown)), shown, slices.Sorted(maps.Keys(b.scripts))))
		return nil
	}
	return model
}

// buildScripts makes the models of the scripts section. Scripts that are wrong are
// known too, so that their agents are not.
func (b *builder) buildScripts(replies map[string][]*script.Reply) {
	b.scripts = map[string]*script.Model{}
	for name, list := range replies {
		at := join("scripts", name)
		for i, reply := range list { // one by one, for their places
			if _, err := script.New(name, reply); err != nil && reply != nil {
				b.fault(fmt.Sprintf("%s[%d]", at, i), "%v", errors.Unwrap(err))
			}
		}
		b.scripts[name], _ = script.New(name, list...)
	}
}

func (b *builder) tools(path string, doc *agentDoc) (tools []*agent.Tool) {
	names := map[string]string{}
	for i, each := range doc.Tools {
		if at := fmt.Sprintf("%s[%d]", path, i); each != nil && !b.bad[at] {
			b.name(at, each.Name, names)
			if tool := b.tool(at, each, doc.ToolTimeout); tool != nil {
				tools = append(tools, tool)
			}
		}
	}
	return tools
}

// tool returns a tool, nil if there is something wrong with it.
func (b *builder) tool(path string, doc *toolDoc, agentTimeout time.Duration) *agent.Tool {
	b.positive(join(path, "timeout"), doc.Timeout)
	b.checkSchema(join(path, "yields"), doc.Yields)
	at := join(path, "parameters")
	if p := doc.Parameters; p != nil && p.Type != "object" && !b.badWithin(at) {
		b.fault(at, "arguments are always an object; want type: object")
	}
	b.checkSchema(at, doc.Parameters)
	switch {
	case b.bad[join(path, "http")], b.bad[join(path, "yields")]:
		return nil
	case doc.HTTP != nil:
		return b.httpTool(path, doc, agentTimeout)
	case doc.Yields == nil:
		b.fault(path, "it does nothing; want http, or yields, or both")
	case b.has(join(path, "timeout")):
		b.fault(join(path, "timeout"), "nothing runs that could take too long; people have all the time they need")
	}
	return &agent.Tool{Name: doc.Name, Description: doc.Description, Parameters: doc.Parameters, Yields: doc.Yields}
}

func (b *builder) httpTool(path string, doc *toolDoc, agentTimeout time.Duration) *agent.Tool {
	at := join(path, "http")
	b.positive(join(at, "timeout"), doc.HTTP.Timeout)
	if b.has(join(path, "timeout")) && b.has(join(at, "timeout")) {
		b.fault(join(at, "timeout"), "the tool has a timeout already; want one of the two")
	}
	if size := join(at, "maxResponse"); b.has(size) && !b.bad[size] && doc.HTTP.MaxResponse == 0 {
		b.fault(size, "0 is too few; want 1 byte or more")
	}
	cfg := httptool.Config{
		Name: doc.Name, Description: doc.Description, Parameters: doc.Parameters, Yields: doc.Yields,
		Method: doc.HTTP.Method, URL: doc.HTTP.URL, Headers: doc.HTTP.Headers,
		Timeout:     cmp.Or(doc.HTTP.Timeout, doc.Timeout, agentTimeout),
		MaxResponse: int64(doc.HTTP.MaxResponse), AllowPrivate: b.opts.AllowPrivate,
	}
	if doc.HTTP.AllowPrivate != nil {
		cfg.AllowPrivate = *doc.HTTP.AllowPrivate
	}
	if b.badWithin(join(path, "parameters")) {
		cfg.Parameters = nil // what they require is not known
	}
	b.checkHTTP(path, &cfg)
	if b.badWithin(path) {
		return nil
	}
	tool, err := httptool.New(cfg)
	if err != nil { // Check has found nothing, so this is a mistake here
		b.fault(at, "%s", b.withoutSecrets(err.Error()))
	}
	return tool
}

// checkHTTP puts the faults of the configuration to their fields.
func (b *builder) checkHTTP(path string, cfg *httptool.Config) {
	for _, fault := range cfg.Check() {
		at := join(path, "http")
		header, isHeader := strings.CutPrefix(fault.Field, "headers.")
		switch {
		case fault.Field == "timeout": // it is one of three, and has been judged there
			continue
		case isHeader:
			at = join(join(at, "headers"), header)
		case fault.Field == "yields":
			at = join(path, "yields")
		default:
			at = join(at, fault.Field)
		}
		text := fault.Text
		if fault.Field == "url" && !b.has(at) {
			text = "it is missing; want the URL to call"
		}
		if !b.bad[at] {
			b.fault(at, "%s", b.withoutSecrets(text))
		}
	}
}
