package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/turnpool/turnpool/turn"
)

// DefaultMaxSteps is the number of model calls of a run, unless the agent says
// otherwise.
const DefaultMaxSteps = 25

// Agent describes an agent. It is not changed while it runs, and one value
// serves any number of runs at once.
type Agent struct {
	// Name is 1 to 64 letters, digits, "_" or "-".
	Name        string
	Description string
	Model       Model
	// Instructions are the system text.
	Instructions string
	Tools        []*Tool
	// MaxSteps bounds the model calls of one run; 0: [DefaultMaxSteps]. A run
	// whose model still asks for tools then ends as max_steps, and commits.
	MaxSteps int
	// MaxDuration ends a run as max_duration, which commits what was finished;
	// 0: no such limit.
	MaxDuration time.Duration
	// ToolTimeout is the limit of each tool that has none of its own; 0: none.
	ToolTimeout time.Duration
	// Sequential runs the calls of a step one after another, in the model's
	// order, instead of in parallel.
	Sequential bool
}

// Check reports what is wrong with the agent, all of it. Whoever runs agents
// checks them first.
func (a *Agent) Check() error {
	if a == nil {
		return errors.New("an agent is nil")
	}
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("agent %q: "+format, append([]any{a.Name}, args...)...))
	}
	if !turn.ValidName(a.Name) {
		fault("a name has 1 to 64 letters, digits, _ or -")
	}
	if a.Model == nil {
		fault("it has no model")
	}
	if a.MaxSteps < 0 || a.MaxDuration < 0 || a.ToolTimeout < 0 {
		fault("limits must not be negative")
	}
	seen := map[string]bool{}
	for i, t := range a.Tools {
		if t == nil {
			fault("tool %d of the list is nil", i+1)
			continue
		}
		if err := t.Check(); err != nil {
			fault("%w", err)
		}
		if seen[t.Name] {
			fault("tool %q is there twice", t.Name)
		}
		seen[t.Name] = true
	}
	return errors.Join(errs...)
}

// Info is what a worker announces of the agent.
func (a *Agent) Info(pool string) turn.AgentInfo {
	info := turn.AgentInfo{Name: a.Name, Description: a.Description, Pool: pool, Tools: []turn.ToolInfo{}}
	for _, t := range a.Tools {
		info.Tools = append(info.Tools, turn.ToolInfo{Name: t.Name, InputSchema: t.answerSchema()})
	}
	return info
}

func (a *Agent) maxSteps() int {
	if a.MaxSteps == 0 {
		return DefaultMaxSteps
	}
	return a.MaxSteps
}

func (a *Agent) tool(name string) *Tool {
	for _, t := range a.Tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}
