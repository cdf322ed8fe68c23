package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// deafModel writes before and after it is released, whatever its context says.
type deafModel struct {
	release chan struct{}
	ended   chan struct{}
}

func newDeafModel() *deafModel {
	return &deafModel{release: make(chan struct{}), ended: make(chan struct{})}
}

func (*deafModel) Name() string { return "deaf" }

func (m *deafModel) Generate(_ context.Context, _ *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	defer close(m.ended)
	emit(agent.ModelDelta{Text: "before"})
	<-m.release
	emit(agent.ModelDelta{Text: "after"})
	return agenttest.Text("beforeafter"), nil
}

// stops are the ways in which a run is stopped from outside: each gives the
// context of a run and its way to end.
var stops = map[string]struct {
	context func(context.Context) (ctx context.Context, stop func())
	status  session.Status
	code    string
	err     error
}{
	"abort": {
		context: func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errBye) }
		},
		status: session.StatusAborted, err: errBye,
	},
	"timeout": {
		context: func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, agent.ErrTimeout)
			return ctx, func() { time.Sleep(2 * time.Second); cancel() } // of the bubble's clock, past the limit
		},
		status: session.StatusError, code: turn.CodeTimeout, err: agent.ErrTimeout,
	},
}

var errBye = errors.New("bye")

// stoppedAs checks how a stopped run ended.
func stoppedAs(t *testing.T, out agent.Outcome, status session.Status, code string, err error) {
	t.Helper()
	equal(t, "status", out.Status, status)
	if !errors.Is(out.Err, err) {
		t.Errorf("err %v, want %v", out.Err, err)
	}
	got := ""
	if out.Error != nil {
		got = out.Error.Code
	}
	equal(t, "code", got, code)
	last := out.Events[len(out.Events)-1].(*session.InvocationEnd)
	equal(t, "reason", last.Reason, status)
	equal(t, "error of the end", last.Error, out.Error)
	paired(t, out.Events)
	if out.Status.Commits() {
		t.Errorf("%s commits", out.Status)
	}
}

func TestStopInModelThatIsDeaf(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				model := newDeafModel()
				o := newOne(&agent.Agent{Model: model}, "hi")
				ctx, stop := c.context(t.Context())
				done := o.start(ctx)
				synctest.Wait()
				stop()
				out := await(t, done)
				stoppedAs(t, out, c.status, c.code, c.err)
				const want = "invocation_start model_start assistant_delta model_end invocation_end"
				equal(t, "stream", types(o.sink.all()), want)
				end := of[*session.ModelEnd](out.Events)[0]
				equal(t, "finish reason", end.FinishReason, "error")

				close(model.release)
				<-model.ended
				synctest.Wait()
				equal(t, "stream after the model woke up", types(o.sink.all()), want)
			})
		})
	}
}

// What a model returns once its run was stopped may be cut short, so it is no
// answer; and its own words about it are not why the run ended.
func TestStopInModelThatListens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer *agent.ModelResponse
		err    error
	}{
		"half an answer": {answer: agenttest.Text("half an ans")},
		"calls":          {answer: agenttest.Calls("t", `{}`)},
		"its own words":  {err: &agent.ModelError{Message: "connection reset"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // the answer and the stop race
				ctx, cancel := context.WithCancelCause(t.Context())
				o := newOne(&agent.Agent{Model: modelFunc(func(context.Context, func(agent.ModelDelta)) (*agent.ModelResponse, error) {
					cancel(errBye)
					return c.answer, c.err
				})}, "hi")
				out := await(t, o.start(ctx))
				stoppedAs(t, out, session.StatusAborted, "", errBye)
				equal(t, "stream", types(o.sink.all()), "invocation_start model_start model_end invocation_end")
			}
		})
	}
}

// A tool that saw its context end says so in its own words; what counts is why.
func TestStopInToolThatListens(t *testing.T) {
	t.Parallel()
	for range 20 { // the tool and the stop race
		ctx, cancel := context.WithCancelCause(t.Context())
		o := newOne(&agent.Agent{Model: agenttest.NewModel(agenttest.Calls("t", `{}`)), Tools: []*agent.Tool{
			tool("t", func(context.Context) error { cancel(errBye); return errors.New("interrupted") }),
		}}, "hi")
		out := await(t, o.start(ctx))
		stoppedAs(t, out, session.StatusAborted, "", errBye)
		equal(t, "result", of[*session.ToolResult](out.Events)[0].Error, errBye.Error())
	}
}

func TestStopInToolThatIsDeaf(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				deaf := tool("deaf", func(context.Context) error { <-release; return nil })
				model := agenttest.NewModel(agenttest.Calls("quick", `{}`, "deaf", `{}`), agenttest.Text("never"))
				o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{deaf, raw("quick", `1`)}}, "hi")
				ctx, stop := c.context(t.Context())
				done := o.start(ctx)
				synctest.Wait()
				stop()
				out := await(t, done)
				stoppedAs(t, out, c.status, c.code, c.err)
				before := len(o.sink.all())
				close(release)
				synctest.Wait()
				equal(t, "events after the tool woke up", len(o.sink.all()), before)
				equal(t, "model calls", model.Calls(), 1)
			})
		})
	}
}

// A flush that waits ends with the run, and no tool has started.
func TestStopInFlush(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		for nth := 1; nth <= 2; nth++ {
			t.Run(fmt.Sprint(name, nth), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ran := 0
					model := agenttest.NewModel(agenttest.Calls("t", `{}`), agenttest.Text("never"))
					o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{
						tool("t", func(context.Context) error { ran++; return nil }),
					}}, "hi")
					o.sink.flush = blockedAt(nth)
					ctx, stop := c.context(t.Context())
					done := o.start(ctx)
					synctest.Wait()
					stop()
					out := await(t, done)
					stoppedAs(t, out, c.status, c.code, c.err)
					equal(t, "tool runs", ran, nth-1)
					equal(t, "model calls", model.Calls(), 1)
				})
			})
		}
	}
}

// blockedAt makes the nth flush wait for the end of its context.
func blockedAt(nth int) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		if n != nth {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func TestStoppedBeforeItStarts(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Text("never"))
	o := newOne(&agent.Agent{Model: model}, "hi")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBye)
	out := await(t, o.start(ctx))
	stoppedAs(t, out, session.StatusAborted, "", errBye)
	equal(t, "stream", types(o.sink.all()), "invocation_start invocation_end")
	equal(t, "model calls", model.Calls(), 0)
}

// maxDuration ends a run wherever it is, and what was finished is committed:
// never a call without its result.
func TestMaxDuration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		block   func(o *one, release chan struct{})
		stream  string
		results []string // result or error of each call, in the model's order
	}{
		"in a deaf model": {
			block: func(o *one, release chan struct{}) {
				o.Agent.Model = &deafModel{release: release, ended: make(chan struct{})}
			},
			stream: "invocation_start model_start assistant_delta model_end invocation_end",
		},
		"in a tool": {
			block: func(o *one, release chan struct{}) {
				o.Agent.Tools[1] = tool("slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			},
			stream:  "invocation_start model_start model_end tool_call tool_call tool_result tool_result invocation_end",
			results: []string{"1", "the agent's maxDuration is over"},
		},
		"in a deaf tool": {
			block: func(o *one, release chan struct{}) {
				o.Agent.Tools[1] = tool("slow", func(context.Context) error { <-release; return nil })
			},
			stream:  "invocation_start model_start model_end tool_call tool_call tool_result tool_result invocation_end",
			results: []string{"1", "the agent's maxDuration is over"},
		},
		"in a tool that finished all the same": {
			block: func(o *one, release chan struct{}) {
				o.Agent.Sequential = true
				o.Agent.Tools[0] = tool("quick", func(ctx context.Context) error { <-ctx.Done(); return nil })
			},
			stream: "invocation_start model_start model_end tool_call tool_call tool_result tool_result invocation_end",
		},
		"before the tools": {
			block: func(o *one, release chan struct{}) {
				o.sink.flush = blockedAt(1)
			},
			stream:  "invocation_start model_start model_end tool_call tool_call tool_result tool_result invocation_end",
			results: []string{"the agent's maxDuration is over", "the agent's maxDuration is over"},
		},
		"before the next model call": {
			block: func(o *one, release chan struct{}) {
				o.sink.flush = blockedAt(2)
			},
			stream:  "invocation_start model_start model_end tool_call tool_call tool_result tool_result invocation_end",
			results: []string{"1", "2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				model := agenttest.NewModel(agenttest.Calls("quick", `{}`, "slow", `{}`), agenttest.Text("never"))
				o := newOne(&agent.Agent{
					Model: model, MaxDuration: time.Second, Tools: []*agent.Tool{raw("quick", `1`), raw("slow", `2`)},
				}, "hi")
				release := make(chan struct{})
				c.block(o, release)
				out := o.do(t)
				equal(t, "status", out.Status, session.StatusMaxDuration)
				equal(t, "stream", types(o.sink.all()), c.stream)
				if out.Error != nil || out.Err != nil || !out.Status.Commits() {
					t.Errorf("errors %v, %v; commits: %v", out.Error, out.Err, out.Status.Commits())
				}
				paired(t, out.Events)
				if c.results != nil {
					var got []string
					for _, r := range of[*session.ToolResult](out.Events) {
						got = append(got, string(r.Result)+r.Error)
						if r.TimedOut {
							t.Errorf("%s is said to have timed out", r.Name)
						}
					}
					equal(t, "results", got, c.results)
				}
				close(release)
				synctest.Wait()
				equal(t, "stream afterwards", types(o.sink.all()), c.stream)
			})
		})
	}
}

func TestMaxDurationNotReached(t *testing.T) {
	t.Parallel()
	o := newOne(&agent.Agent{Model: agenttest.NewModel(agenttest.Text("ok")), MaxDuration: time.Hour}, "hi")
	equal(t, "status", o.do(t).Status, session.StatusCompleted)
}

// The run's own timeout comes before the agent's duration when it is shorter.
func TestTimeoutBeforeMaxDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model := newDeafModel()
		o := newOne(&agent.Agent{Model: model, MaxDuration: 2 * time.Second}, "hi")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, agent.ErrTimeout)
		defer cancel()
		stoppedAs(t, await(t, o.start(ctx)), session.StatusError, turn.CodeTimeout, agent.ErrTimeout)
		close(model.release)
		<-model.ended
	})
}
