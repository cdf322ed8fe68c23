package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/turn"
)

// Tool is something that the model may call. It is not copied or changed once an
// agent has it, and serves any number of calls at once.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON schema of the arguments: what the model is told,
	// and what they are checked against before Execute is called; nil: nothing.
	Parameters *jsonschema.Schema
	// Timeout is the limit of one call; 0: the agent's. A call that passes it
	// has its context cancelled and ends with an error that the model sees.
	Timeout time.Duration
	// Execute runs one call and returns the result as JSON (empty: null). An
	// error becomes the call's result; the model sees its text, and the turn
	// goes on. Calls of one step run at the same time. An Execute that ignores
	// its context is left behind when the turn ends, and ends by itself.
	Execute func(ctx context.Context, call *Call) (json.RawMessage, error)

	resolve  sync.Once
	resolved *jsonschema.Resolved // of Parameters
	fault    error                // why Parameters is no schema
}

// Call is one call of a tool.
type Call struct {
	ID           string
	Tool         string
	Args         json.RawMessage
	AgentName    string
	InvocationID string
	SessionID    string
	// Token is the same on every attempt of the turn, for tools whose effect
	// must happen once.
	Token string
}

// NewTool makes a tool of a Go function. The schema of the arguments is that of
// In (see [jsonschema.For]: names from json tags, descriptions from jsonschema
// tags, fields without omitempty are required, no others are allowed); the
// result is Out as JSON. It panics if In is no struct or map, or has no schema:
// that is a mistake in the program.
func NewTool[In, Out any](name, description string, run func(ctx context.Context, in In) (Out, error)) *Tool {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(fmt.Sprintf("agent.NewTool(%q): %v", name, err))
	}
	if schema.Type != "object" {
		panic(fmt.Sprintf("agent.NewTool(%q): arguments must be a struct or a map, not %v", name, reflect.TypeFor[In]()))
	}
	return &Tool{
		Name: name, Description: description, Parameters: schema,
		Execute: func(ctx context.Context, call *Call) (json.RawMessage, error) {
			var in In
			if err := json.Unmarshal(call.Args, &in); err != nil {
				return nil, fmt.Errorf("arguments: %w", err)
			}
			out, err := run(context.WithValue(ctx, callKey{}, call), in)
			if err != nil {
				return nil, err
			}
			return json.Marshal(out)
		},
	}
}

type callKey struct{}

// CallOf returns the call that a function given to [NewTool] serves, or nil.
func CallOf(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

// faults says what is wrong with the tool.
func (t *Tool) faults() (texts []string) {
	if !turn.ValidName(t.Name) {
		texts = append(texts, "a name has 1 to 64 letters, digits, _ or -")
	}
	if t.Execute == nil {
		texts = append(texts, "it has no code to execute")
	}
	if t.Timeout < 0 {
		texts = append(texts, "its timeout must not be negative")
	}
	if _, err := t.schema(); err != nil {
		texts = append(texts, "its parameters are no schema: "+err.Error())
	}
	return texts
}

// schema returns the schema of the arguments, ready to check with, or nil if
// there is none.
func (t *Tool) schema() (*jsonschema.Resolved, error) {
	t.resolve.Do(func() {
		if t.Parameters != nil {
			t.resolved, t.fault = t.Parameters.Resolve(nil)
		}
	})
	return t.resolved, t.fault
}

// check returns what the model must know of arguments that do not fit.
func (t *Tool) check(args json.RawMessage) error {
	schema, err := t.schema()
	if schema == nil {
		return err
	}
	var value any
	if err := json.Unmarshal(args, &value); err != nil {
		return fmt.Errorf("arguments are not JSON: %w", err)
	}
	if _, isText := value.(string); isText { // what the model wrote was no JSON, see argsOf
		return errors.New("arguments are not a JSON object")
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("arguments do not fit the schema: %w", err)
	}
	return nil
}

// callToken derives a call's token from what is the same on every attempt: the
// turn, the step, what is called with which arguments, and how many equal calls
// of the step went before.
func callToken(invocationID string, step int, name, args string, nth int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s\n%d", invocationID, step, name, args, nth))
	return "tok_" + hex.EncodeToString(sum[:16])
}

// canonical returns arguments in a form that does not depend on the order in
// which a model writes their keys.
func canonical(args json.RawMessage) string {
	var value any
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	if dec.Decode(&value) == nil {
		if sorted, err := json.Marshal(value); err == nil {
			return string(sorted)
		}
	}
	return string(args)
}

var (
	errToolTimeout = errors.New("timed out")
	errNoTool      = errors.New("no such tool")
)
