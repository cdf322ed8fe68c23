package agentsfile_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agentsfile"
)

// All mistakes of a file come at once, in its order, each with its place.
func TestErrorsGolden(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/bad/many.txt")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/bad/many.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := agentsfile.Parse("many.yaml", data, options())
	if err == nil {
		t.Fatalf("no error, but %v", file)
	}
	equal(t, "errors", strings.Split(err.Error(), "\n"), strings.Split(strings.TrimSpace(string(want)), "\n"))
}

// agentWith is a file whose one agent has these fields as well; they begin in line
// 4, column 5.
func agentWith(fields string) string {
	return "agents:\n  - name: a\n    model: openai/m\n    " + fields + "\n"
}

// toolWith is a file whose one tool is this.
func toolWith(tool string) string { return agentWith("tools: [" + tool + "]") }

func TestErrors(t *testing.T) {
	t.Parallel()
	const (
		tool    = "agents[0].tools[0]"
		noAgent = "f.yaml:1:1: agents: there is none; want a list of at least one"
	)
	for name, c := range map[string]struct{ text, want string }{
		"nothing":          {"", noAgent},
		"a comment":        {"# nothing\n", noAgent},
		"null":             {"~", noAgent},
		"no agents":        {"scripts: {}", noAgent},
		"empty agents":     {"agents: []", "f.yaml:1:9: agents: there is none; want a list of at least one"},
		"null agents":      {"agents:", noAgent},
		"a text":           {"agents", `f.yaml:1:1: "agents" is no mapping; want fields: agents, scripts`},
		"a list":           {"- a", `f.yaml:1:1: a list is no mapping; want fields: agents, scripts`},
		"agents no list":   {"agents: {name: a}", `f.yaml:1:9: agents: a mapping is no list`},
		"agent no mapping": {"agents: [a]", `f.yaml:1:10: agents[0]: "a" is no mapping; want fields: name, description, model, api, instructions, maxSteps, maxDuration, toolTimeout, sequential, tools`},
		"no YAML":          {"agents: [", `f.yaml:1:9: it is no YAML: sequence end token ']' not found`},
		"a tab":            {"agents:\n\t- name: a", "f.yaml:2:1: it is no YAML: found character ' ' that cannot start any token"},
		"a key twice":      {agentWith("name: b"), `f.yaml:4:5: it is no YAML: mapping key "name" already defined at [2:5]`},
		"two documents":    {"agents: []\n---\nagents: []", `f.yaml:3:1: it has a second document; want one`},
		"a tag":            {agentWith("description: !!str 12"), `f.yaml:4:18: agents[0].description: it has a tag, !!str; want none`},
		"no anchor":        {agentWith("description: *d"), `f.yaml:4:18: agents[0].description: there is no anchor &d before it`},
		"an anchor later":  {"agents: [{name: a, model: *m}, {name: b, model: &m openai/m}]", `f.yaml:1:27: agents[0].model: there is no anchor &m before it`},
		"a merge":          {agentWith("<<: hello"), `f.yaml:4:9: agents[0]: << merges mappings; want one, or a list of them`},
		"an alias in it": {"agents: &a\n  - {name: a, model: openai/m, tools: *a}", "f.yaml:2:5: agents[0].tools[0]: it does nothing; want http, or yields, or both\n" +
			"f.yaml:2:15: agents[0].tools[0].model: unknown field; want name, description, parameters, timeout, yields, http\n" +
			"f.yaml:2:32: agents[0].tools[0].tools: unknown field; want name, description, parameters, timeout, yields, http"},
		"an unknown field":  {agentWith("color: red"), `f.yaml:4:5: agents[0].color: unknown field; want name, description, model, api, instructions, maxSteps, maxDuration, toolTimeout, sequential, tools`},
		"a case":            {agentWith("maxsteps: 3"), `f.yaml:4:5: agents[0].maxsteps: unknown field; did you mean maxSteps?`},
		"two letters":       {agentWith("intsructions: hi"), `f.yaml:4:5: agents[0].intsructions: unknown field; did you mean instructions?`},
		"a field of a tool": {toolWith("{name: t, yield: true}"), `f.yaml:4:13: ` + tool + `: it does nothing; want http, or yields, or both` + "\nf.yaml:4:23: " + tool + `.yield: unknown field; did you mean yields?`},
		"a field of http":   {toolWith("{name: t, http: {url: https://h, header: {}}}"), `f.yaml:4:46: ` + tool + `.http.header: unknown field; did you mean headers?`},
		"a number as text":  {agentWith("instructions: 42"), `f.yaml:4:19: agents[0].instructions: 42 is no text; put it in quotes`},
		"a list as text":    {agentWith("instructions: [a]"), `f.yaml:4:19: agents[0].instructions: a list is no text`},
		"a long text":       {agentWith("maxSteps: " + strings.Repeat("é", 50)), `f.yaml:4:15: agents[0].maxSteps: "` + strings.Repeat("é", 40) + `…" is no whole number`},
		"a fraction":        {agentWith("maxSteps: 1.5"), `f.yaml:4:15: agents[0].maxSteps: 1.5 is no whole number`},
		"a huge number":     {agentWith("maxSteps: 18446744073709551615"), `f.yaml:4:15: agents[0].maxSteps: 18446744073709551615 is no whole number`},
		"minus one":         {agentWith("maxSteps: -1"), `f.yaml:4:15: agents[0].maxSteps: -1 is too few; want 1 or more`},
		"no time":           {agentWith("maxDuration: 0s"), `f.yaml:4:18: agents[0].maxDuration: 0s is no time; want a duration above 0, such as 30s`},
		"a long name":       {strings.Replace(agentWith(""), "name: a", "name: "+strings.Repeat("a", 65), 1), `f.yaml:2:11: agents[0].name: "` + strings.Repeat("a", 40) + `…" is no name; want 1 to 64 letters, digits, _ or -`},
		"an empty name":     {`agents: [{name: "", model: openai/m}]`, `f.yaml:1:17: agents[0].name: "" is no name; want 1 to 64 letters, digits, _ or -`},
		"no model":          {"agents: [{name: a}]", "f.yaml:1:10: agents[0].model: it is missing; want openai/<model>, or script/<name> of this file's scripts"},
		"half a model":      {"agents: [{name: a, model: openai/}]", "f.yaml:1:27: agents[0].model: \"openai/\" is no model; want openai/<model>, or script/<name> of this file's scripts"},
		"no provider":       {"agents: [{name: a, model: /x}]", "f.yaml:1:27: agents[0].model: \"/x\" is no model; want openai/<model>, or script/<name> of this file's scripts"},
		"another provider":  {"agents: [{name: a, model: acme/x}]", "f.yaml:1:27: agents[0].model: unknown provider acme"},
		"no such script":    {"agents: [{name: a, model: script/d}]\nscripts: {demo: [], other: []}", `f.yaml:1:27: agents[0].model: there is no script "d" in this file; want demo, other`},
		"no script at all":  {"agents: [{name: a, model: script/d}]", `f.yaml:1:27: agents[0].model: there is no script "d" in this file; there is none`},
		"a script's API":    {"agents: [{name: a, model: script/dem, api: x}]\nscripts: {demo: []}", "f.yaml:1:27: agents[0].model: there is no script \"dem\" in this file; did you mean demo?\nf.yaml:1:44: agents[0].api: \"x\" is no API; want responses or chat"},

		"a tool of nothing":   {toolWith("{name: t}"), `f.yaml:4:13: ` + tool + `: it does nothing; want http, or yields, or both`},
		"null yields":         {toolWith("{name: t, yields: }"), `f.yaml:4:13: ` + tool + `: it does nothing; want http, or yields, or both`},
		"http no mapping":     {toolWith("{name: t, http: https://h}"), `f.yaml:4:29: ` + tool + `.http: "https://h" is no mapping; want fields: method, url, headers, timeout, maxResponse, allowPrivate`},
		"no URL":              {toolWith("{name: t, http: {method: GET}}"), `f.yaml:4:29: ` + tool + `.http.url: it is missing; want the URL to call`},
		"an unknown argument": {toolWith("{name: t, parameters: {type: object, properties: {a: {}}}, http: {url: 'https://h/{b}'}}"), `f.yaml:4:84: ` + tool + `.http.url: {b} is no required property of parameters`},
		"yields of a GET":     {toolWith("{name: t, yields: {}, http: {url: https://h, method: GET}}"), `f.yaml:4:31: ` + tool + `.yields: the answer goes in the body; want a method that has one, such as POST`},
		"a header's value":    {toolWith(`{name: t, http: {url: https://h, headers: {X-A: "a\nb"}}}`), `f.yaml:4:61: ` + tool + `.http.headers.X-A: want a value without line breaks and control characters`},
		"a null header":       {toolWith(`{name: t, http: {url: https://h, headers: {X-A: }}}`), `f.yaml:4:60: ` + tool + `.http.headers.X-A: it is empty`},
		"headers as a list":   {toolWith(`{name: t, http: {url: https://h, headers: [X-A]}}`), `f.yaml:4:55: ` + tool + `.http.headers: a list is no mapping`},
		"two timeouts":        {toolWith("{name: t, timeout: 1s, http: {url: https://h, timeout: 2s}}"), `f.yaml:4:68: ` + tool + `.http.timeout: the tool has a timeout already; want one of the two`},
		"no bytes":            {toolWith("{name: t, http: {url: https://h, maxResponse: 0}}"), `f.yaml:4:59: ` + tool + `.http.maxResponse: 0 is too few; want 1 byte or more`},
		"too many bytes":      {toolWith("{name: t, http: {url: https://h, maxResponse: 2GiB}}"), `f.yaml:4:59: ` + tool + `.http.maxResponse: want a number of bytes from 1 to 1 GiB`},
		"more than fits":      {toolWith("{name: t, http: {url: https://h, maxResponse: 99999999999GiB}}"), `f.yaml:4:59: ` + tool + `.http.maxResponse: "99999999999GiB" is no size; want bytes such as 4096, 256KiB or 8MiB`},
		"bytes of a list":     {toolWith("{name: t, http: {url: https://h, maxResponse: []}}"), `f.yaml:4:59: ` + tool + `.http.maxResponse: a list is no text`},

		"no arguments":      {toolWith("{name: t, yields: true, parameters: {type: string}}"), `f.yaml:4:49: ` + tool + `.parameters: arguments are always an object; want type: object`},
		"any arguments":     {toolWith("{name: t, yields: true, parameters: true}"), `f.yaml:4:49: ` + tool + `.parameters: arguments are always an object; want type: object`},
		"schema of a list":  {toolWith("{name: t, yields: []}"), `f.yaml:4:31: ` + tool + `.yields: a list is no JSON schema; want a mapping such as {type: string}`},
		"schema, a type":    {toolWith("{name: t, yields: {type: }}"), `f.yaml:4:37: ` + tool + `.yields.type: it is empty`},
		"schema, no type":   {toolWith("{name: t, yields: {type: []}}"), `f.yaml:4:38: ` + tool + `.yields.type: it names no type; want one of array, boolean, integer, null, number, object, string`},
		"schema, required":  {toolWith("{name: t, yields: {required: ref}}"), `f.yaml:4:42: ` + tool + `.yields.required: "ref" is no list`},
		"schema, deep":      {toolWith("{name: t, yields: {properties: {a: {items: {minimum: b}}}}}"), `f.yaml:4:66: ` + tool + `.yields.properties.a.items.minimum: "b" is no number`},
		"schema, null":      {toolWith("{name: t, yields: {properties: {a: }}}"), `f.yaml:4:47: ` + tool + `.yields.properties.a: it is empty`},
		"schema, items":     {toolWith("{name: t, yields: {items: [{}]}}"), `f.yaml:4:39: ` + tool + `.yields.items: a list is no JSON schema; want a mapping such as {type: string}`},
		"schema, no number": {toolWith("{name: t, yields: {const: .nan}}"), `f.yaml:4:39: ` + tool + `.yields.const: .nan is nothing that JSON has`},
		"schema, a pattern": {toolWith("{name: t, yields: {patternProperties: {'[': {}}}}"), `f.yaml:4:57: ` + tool + `.yields.patternProperties["["]: error parsing regexp: missing closing ]: ` + "`[`"},
		"schema, no anchor": {toolWith("{name: t, yields: {$ref: '#/$defs/x'}}"), `f.yaml:4:31: ` + tool + `.yields: it is no JSON schema: JSON Pointer "/$defs/x": no key "x" in map`},
		"schema, elsewhere": {toolWith("{name: t, yields: {$ref: 'https://h/s'}}"), `f.yaml:4:31: ` + tool + `.yields: it is no JSON schema: loading https://h/s: cannot resolve remote schemas: no loader passed to Schema.Resolve`},

		"no such variable":     {agentWith("instructions: a ${NOT_SET} b"), "f.yaml:4:19: agents[0].instructions: ${NOT_SET} is not set in the environment"},
		"two of them":          {agentWith("instructions: ${NOT_SET} ${NEITHER}"), "f.yaml:4:19: agents[0].instructions: ${NOT_SET} is not set in the environment\nf.yaml:4:19: agents[0].instructions: ${NEITHER} is not set in the environment"},
		"an open variable":     {agentWith("instructions: a ${HOTEL"), "f.yaml:4:19: agents[0].instructions: ${ begins no variable; want ${NAME} of letters, digits and _, or $${ for ${ itself"},
		"a default":            {agentWith("instructions: ${HOTEL:-x}"), "f.yaml:4:19: agents[0].instructions: ${ begins no variable; want ${NAME} of letters, digits and _, or $${ for ${ itself"},
		"a digit":              {agentWith("instructions: ${1}"), "f.yaml:4:19: agents[0].instructions: ${ begins no variable; want ${NAME} of letters, digits and _, or $${ for ${ itself"},
		"a variable of a name": {"agents: [{name: '${HOTEL}', model: openai/m}]", "f.yaml:1:17: agents[0].name: \"${HOTEL}\" is no name; want 1 to 64 letters, digits, _ or -"},
		"of a script":          {"agents: [{name: a, model: 'script/${HOTEL}'}]\nscripts: {demo: []}", "f.yaml:1:27: agents[0].model: there is no script \"${HOTEL}\" in this file; want demo"},
		"of a time":            {agentWith("maxDuration: ${HOTEL}"), "f.yaml:4:18: agents[0].maxDuration: \"${HOTEL}\" is no duration; want one such as 30s or 15m"},

		"scripts as a list":   {"agents: [{name: a, model: openai/m}]\nscripts: []", "f.yaml:2:10: scripts: a list is no mapping"},
		"a script as a text":  {"agents: [{name: a, model: openai/m}]\nscripts: {demo: hi}", `f.yaml:2:17: scripts.demo: "hi" is no list`},
		"a script of nothing": {"agents: [{name: a, model: openai/m}]\nscripts: {demo: }", `f.yaml:2:16: scripts.demo: it is empty`},
		"a reply as a text":   {"agents: [{name: a, model: openai/m}]\nscripts: {demo: [hi]}", `f.yaml:2:18: scripts.demo[0]: "hi" is no mapping; want fields: match, agent, step, thought, text, calls, error, delay, chunkSize, chunkDelay, usage, finishReason`},
		"a call":              {"agents: [{name: a, model: openai/m}]\nscripts: {demo: [{}, {calls: [{nam: t}]}]}", "f.yaml:2:22: scripts.demo[1]: calls: entry 1 has no name\nf.yaml:2:32: scripts.demo[1].calls[0].nam: unknown field; did you mean name?"},
		"an odd script":       {"agents: [{name: a, model: openai/m}]\nscripts: {'a b': [{usage: {inputTokens: x}}]}", `f.yaml:2:41: scripts["a b"][0].usage.inputTokens: "x" is no whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := agentsfile.Parse("f.yaml", []byte(c.text), options())
			if err == nil {
				t.Fatalf("no error, agents %v", file.Agents)
			}
			equal(t, "errors", strings.Split(err.Error(), "\n"), strings.Split(c.want, "\n"))
			if file != nil {
				t.Error("a file beside an error")
			}
		})
	}
}

// Without a resolver there are scripted models only.
func TestNoResolver(t *testing.T) {
	t.Parallel()
	_, err := agentsfile.Parse("f.yaml", []byte(agentWith("")), agentsfile.Options{})
	equal(t, "error", err.Error(), `f.yaml:3:12: agents[0].model: "openai/m" is no model; want script/<name> of this file's scripts`)
	_, err = agentsfile.Parse("f.yaml", []byte(agentWith("")), agentsfile.Options{
		Model: func(agentsfile.ModelRef) (agent.Model, error) { return nil, nil },
	})
	equal(t, "error", err.Error(), `f.yaml:3:12: agents[0].model: it has no model`)
}

// Aliases cannot make the file so large that it cannot be held, or endless.
func TestBombs(t *testing.T) {
	t.Parallel()
	laughs := "agents: [{name: a, model: openai/m}]\nscripts:\n  s0: &s0 [{calls: [{name: t, args: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}]}]\n"
	args := "&a0 [x, x, x, x, x, x, x, x, x, x]"
	for _, name := range []string{"a0", "a1", "a2", "a3", "a4", "a5"} {
		laughs += "  " + name + ": [{calls: [{name: t, args: " + args + "}]}]\n"
		args = "&" + string(name[0]) + string(name[1]+1) + " [*" + name + strings.Repeat(", *"+name, 9) + "]"
	}
	for name, c := range map[string]struct{ text, want string }{
		"laughs":   {laughs, "with its aliases, the file has more than 50000 values"},
		"a loop":   {toolWith("{name: t, yields: {default: &d [*d]}}"), "it is nested more than 100 deep"},
		"two":      {toolWith("{name: t, yields: {default: &d [*d, *d]}}"), "it is nested more than 100 deep"},
		"a merge":  {toolWith("{name: t, yields: &y {<<: *y}}"), "it is nested more than 100 deep"},
		"a schema": {toolWith("{name: t, yields: &y {not: *y}}"), "it is nested more than 100 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := agentsfile.Parse("f.yaml", []byte(c.text), options())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %.300v, want one with %q", err, c.want)
			}
		})
	}
}

// A value of the environment is one text: it brings no YAML, no variables and no
// escapes.
func TestVariables(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.Getenv = environment("A", "x\n    model: script/other # ${B} $${B}", "B", "b", "EMPTY", "", "_a1", "under")
	for written, want := range map[string]string{
		"${A}":            "x\n    model: script/other # ${B} $${B}",
		"<${B}${B}>":      "<bb>",
		"[${EMPTY}]":      "[]",
		"$${B}":           "${B}",
		"$$${B}":          "$${B}",
		"$B $ $$ {B} $ {": "$B $ $$ {B} $ {",
		"${_a1}":          "under",
		"$${B} ${B}":      "${B} b",
		"${B}$":           "b$",
		"${B}$${B}":       "b${B}",
	} {
		t.Run(written, func(t *testing.T) {
			t.Parallel()
			file, err := agentsfile.Parse("f.yaml", []byte(agentWith("instructions: '"+written+"'")), opts)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "instructions", file.Agents[0].Instructions, want)
			equal(t, "model", file.Agents[0].Model.Name(), "openai/m")
		})
	}
}

// Schemas, scripts and keys are taken as they are written.
func TestNoVariables(t *testing.T) {
	t.Parallel()
	const text = `
agents:
  - name: a
    model: script/${HOTEL}
    tools: [{name: t, yields: {title: "${HOTEL}"}}]
scripts: {"${HOTEL}": [{text: "${HOTEL}"}], the Ritz: []}
`
	file, err := agentsfile.Parse("f.yaml", []byte(text), options())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "model", file.Agents[0].Model.Name(), "script/the Ritz")
	equal(t, "title", file.Agents[0].Tools[0].Yields.Title, "${HOTEL}")
}

// Wherever a value of the environment makes a mistake, the error shows the text of
// the file, and not the value.
func TestErrorsHideValues(t *testing.T) {
	t.Parallel()
	const secret = "sk-very secret\x01"
	opts := options()
	opts.Getenv = environment("KEY", secret, "ZERO", "-0h7m")
	opts.Model = func(ref agentsfile.ModelRef) (agent.Model, error) {
		return nil, errors.New("no model " + ref.Name)
	}
	const text = `
agents:
  - name: ${KEY}
    description: ${KEY}
    model: openai/${KEY}
    api: ${KEY}
    instructions: ${KEY} ${NOT_SET}
    maxDuration: ${KEY}
    toolTimeout: ${ZERO}
    tools:
      - name: ${KEY}
        timeout: ${KEY}
        http:
          method: ${KEY}
          url: ${KEY}
          headers: {X-Key: "${KEY}"}
          maxResponse: ${KEY}
      - {name: t, http: {url: "http://${KEY}/x"}}
      - {name: "t", http: {url: "http://h:${KEY}/x"}}
  - {name: b, model: "${KEY}"}
  - {name: c, model: "script/${KEY}"}
  - {name: d, model: "openai/${KEY}"}
`
	_, err := agentsfile.Parse("f.yaml", []byte(text), opts)
	var all agentsfile.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	equal(t, "mistakes", len(all), 17)
	for _, each := range all {
		for _, value := range []string{secret, "sk-very", "7m"} {
			if strings.Contains(each.Error(), value) || strings.Contains(each.Text, value) {
				t.Errorf("the value is in the error: %s", each)
			}
		}
	}
	equal(t, "the last", all[len(all)-1].Error(), "f.yaml:22:22: agents[3].model: no model [redacted]")
}
