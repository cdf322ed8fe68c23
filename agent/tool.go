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
	// Yields, if there is one, makes the tool stop the turn and ask: it is the
	// JSON schema of the answer. Execute runs once the answer is there, maybe days
	// later in another process; without an Execute, the answer is the result.
	Yields *jsonschema.Schema
	// Execute runs one call and returns the result as JSON (empty: null). An
	// error becomes the call's result; the model sees its text, and the turn
	// goes on. Calls of one step run at the same time. An Execute that ignores
	// its context is left behind when the turn ends, and ends by itself.
	Execute func(ctx context.Context, call *Call) (json.RawMessage, error)

	parameters, answers lazySchema // of Parameters and Yields
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
	// Answer is what was answered to a call that stopped to ask.
	Answer json.RawMessage
}

// NewTool makes a tool of a Go function. The schema of the arguments is that of
// In (see [jsonschema.For]: names from json tags, descriptions from jsonschema
// tags, fields without omitempty are required, no others are allowed); the
// result is Out as JSON. It panics if In is no struct or map, or has no schema:
// that is a mistake in the program.
func NewTool[In, Out any](name, description string, run func(ctx context.Context, in In) (Out, error)) *Tool {
	return &Tool{
		Name: name, Description: description, Parameters: objectSchema[In](name),
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

// NewQuestion makes a tool that stops the turn to ask, and whose result is the
// answer. The model writes In, a person answers with Answer; both have a schema as
// in [NewTool].
func NewQuestion[In, Answer any](name, description string) *Tool {
	tool := &Tool{Name: name, Description: description}
	tool.Parameters, tool.Yields = objectSchema[In](name), objectSchema[Answer](name)
	return tool
}

// NewYieldingTool makes a tool that stops the turn to ask, and runs once the answer
// is there, maybe days later in another process, with the arguments as the model
// wrote them.
func NewYieldingTool[In, Answer, Out any](name, description string, run func(ctx context.Context, in In, answer Answer) (Out, error)) *Tool {
	tool := NewTool(name, description, func(ctx context.Context, in In) (out Out, err error) {
		var answer Answer
		if err := json.Unmarshal(CallOf(ctx).Answer, &answer); err != nil {
			return out, fmt.Errorf("answer: %w", err)
		}
		return run(ctx, in, answer)
	})
	tool.Yields = objectSchema[Answer](name)
	return tool
}

// FrontendTool is a tool of a caller's own, see [Run.Frontend]: any answer will do,
// and is the result. Parameters may be nil.
func FrontendTool(name, description string, parameters *jsonschema.Schema) *Tool {
	return &Tool{Name: name, Description: description, Parameters: parameters, Yields: &jsonschema.Schema{}}
}

func objectSchema[T any](tool string) *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("agent: tool %q: %v", tool, err))
	}
	if schema.Type != "object" {
		panic(fmt.Sprintf("agent: tool %q: want a struct or a map, not %v", tool, reflect.TypeFor[T]()))
	}
	return schema
}

type callKey struct{}

// CallOf returns the call that a function given to [NewTool] serves, or nil.
func CallOf(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

// Check reports what is wrong with the tool, all of it. That of an agent checks its
// tools.
func (t *Tool) Check() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("tool %q: "+format, append([]any{t.Name}, args...)...))
	}
	if !turn.ValidName(t.Name) {
		fault("a name has 1 to 64 letters, digits, _ or -")
	}
	if t.Execute == nil && t.Yields == nil {
		fault("it has no code to execute")
	}
	if t.Timeout < 0 {
		fault("its timeout must not be negative")
	}
	if _, err := t.parameters.of(t.Parameters); err != nil {
		fault("its parameters are no schema: %w", err)
	}
	if _, err := t.answers.of(t.Yields); err != nil {
		fault("what it yields is no schema: %w", err)
	}
	return errors.Join(errs...)
}

// check returns what the model must know of arguments that do not fit.
func (t *Tool) check(args json.RawMessage) error {
	if t.Parameters != nil && len(args) > 0 && args[0] == '"' { // what the model wrote was no JSON, see argsOf
		return errors.New("arguments: not a JSON object")
	}
	return t.parameters.check(t.Parameters, "arguments", args)
}

// checkAnswer returns what is wrong with the answer to a call.
func (t *Tool) checkAnswer(answer json.RawMessage) error {
	return t.answers.check(t.Yields, "the answer", answer)
}

// answerSchema is the schema of answers as JSON, nil if the tool asks for none.
func (t *Tool) answerSchema() json.RawMessage {
	if t.Yields == nil {
		return nil
	}
	data, err := json.Marshal(t.Yields)
	switch {
	case err != nil:
		return nil // Check has refused such a tool
	case string(data) == "true": // an empty schema; people expect an object
		return json.RawMessage(`{}`)
	default:
		return data
	}
}

// lazySchema is a schema that is made ready when it is first needed.
type lazySchema struct {
	once     sync.Once
	resolved *jsonschema.Resolved
	fault    error // why it is no schema
}

func (l *lazySchema) of(schema *jsonschema.Schema) (*jsonschema.Resolved, error) {
	l.once.Do(func() {
		if schema != nil {
			l.resolved, l.fault = schema.Resolve(nil)
		}
	})
	return l.resolved, l.fault
}

// check says what is wrong with a value; without a schema, nothing.
func (l *lazySchema) check(schema *jsonschema.Schema, what string, data json.RawMessage) error {
	resolved, err := l.of(schema)
	if resolved == nil {
		return err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return fmt.Errorf("%s: not JSON: %w", what, err)
	}
	if err := resolved.Validate(value); err != nil {
		return fmt.Errorf("%s: does not fit the schema: %w", what, err)
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
