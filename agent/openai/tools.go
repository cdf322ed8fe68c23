package openai

import (
	"encoding/json"

	"github.com/turnpool/turnpool/agent"
)

// parametersOf is a tool's schema in the form that both APIs insist on: an object
// with properties, even if there are none. Below the top it stays as it is, in
// its own order.
func parametersOf(t *agent.Tool) (map[string]any, error) {
	fields := map[string]any{"type": "object", "properties": object{}}
	if t.Parameters == nil {
		return fields, nil
	}
	data, err := json.Marshal(t.Parameters)
	if err != nil {
		return nil, badRequest("the schema of the tool %q: %v", t.Name, err)
	}
	var given object
	_ = json.Unmarshal(data, &given) // true, the schema of everything, leaves it empty
	for name, value := range given {
		fields[name] = value
	}
	return fields, nil
}
