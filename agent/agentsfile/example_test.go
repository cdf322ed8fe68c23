package agentsfile_test

import (
	"fmt"
	"os"

	"github.com/turnpool/turnpool/agent/agentsfile"
)

// A file is read with the environment that the caller hands in. What is wrong
// with it comes all at once, each mistake with its place.
func ExampleParse() {
	const good = `
agents:
  - name: concierge
    model: script/demo
    instructions: You work for ${HOTEL}.
scripts:
  demo:
    - text: "You said {{message}}"
`
	getenv := func(name string) (string, bool) { return "the Ritz", name == "HOTEL" }
	file, err := agentsfile.Parse("agents.yaml", []byte(good), agentsfile.Options{Getenv: getenv})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(file.Agents[0].Model.Name(), "/", file.Agents[0].Instructions)

	const bad = "agents:\n  - name: concierge\n    modle: script/demo\n    maxDuration: 20 minutes\n"
	_, err = agentsfile.Parse("agents.yaml", []byte(bad), agentsfile.Options{})
	fmt.Println(err)
	// Output:
	// script/demo / You work for the Ritz.
	// agents.yaml:2:5: agents[0].model: it is missing; want openai/<model>, or script/<name> of this file's scripts
	// agents.yaml:3:5: agents[0].modle: unknown field; did you mean model?
	// agents.yaml:4:18: agents[0].maxDuration: "20 minutes" is no duration; want one such as 30s or 15m
}
