// Package agenttest has models for tests: answers given in order, calls held
// back by gates, and everything counted. It is for tests only; nothing that
// ships imports it.
package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// Text returns an answer of one text.
func Text(text string) *agent.ModelResponse {
	return &agent.ModelResponse{
		Items:        []agent.Item{{Kind: agent.ItemText, Text: text}},
		Usage:        &session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		FinishReason: "stop",
	}
}

// Calls returns an answer that asks for tools, given as name, arguments, name,
// arguments … Call ids are call_1, call_2 …, as of a provider that counts in each
// answer: a run mints new ones for those that its session has already.
func Calls(nameArgs ...string) *agent.ModelResponse {
	response := &agent.ModelResponse{Usage: &session.ModelUsage{InputTokens: 10, OutputTokens: 5}, FinishReason: "tool_calls"}
	for i := 0; i+1 < len(nameArgs); i += 2 {
		response.Items = append(response.Items, agent.Item{
			Kind: agent.ItemCall, CallID: fmt.Sprintf("call_%d", i/2+1),
			Name: nameArgs[i], Args: json.RawMessage(nameArgs[i+1]),
		})
	}
	return response
}

// Model answers with the given responses by step (the last one again and again
// after that), or by a function, and counts. Its texts are streamed in pieces of
// ChunkSize bytes, or whole.
type Model struct {
	// Answer, if it is set, is called for each request.
	Answer    func(ctx context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error)
	ChunkSize int

	steps []*agent.ModelResponse
	gate  *Gate

	mu       sync.Mutex
	requests []*agent.ModelRequest
}

// NewModel returns a model that answers step n with the nth response.
func NewModel(steps ...*agent.ModelResponse) *Model { return &Model{steps: steps} }

// Gated makes every call wait at the gate before it answers.
func (m *Model) Gated(g *Gate) *Model {
	m.gate = g
	return m
}

// Name implements [agent.Model].
func (m *Model) Name() string { return "agenttest" }

// Calls is how often the model was called.
func (m *Model) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests)
}

// Requests are the requests so far, in order.
func (m *Model) Requests() []*agent.ModelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*agent.ModelRequest{}, m.requests...)
}

// Generate implements [agent.Model].
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.mu.Unlock()
	if m.gate != nil {
		if err := m.gate.Pass(ctx, Message(req)); err != nil {
			return nil, err
		}
	}
	response, err := m.respond(ctx, req)
	if err != nil {
		return nil, err
	}
	for i, it := range response.Items {
		m.stream(i, it, emit)
	}
	return response, nil
}

func (m *Model) respond(ctx context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
	if m.Answer != nil {
		return m.Answer(ctx, req)
	}
	return m.steps[min(req.Step, len(m.steps))-1], nil
}

func (m *Model) stream(place int, it agent.Item, emit func(agent.ModelDelta)) {
	size := m.ChunkSize
	if size == 0 {
		size = max(1, len(it.Text))
	}
	for text := it.Text; text != ""; {
		n := min(size, len(text))
		emit(agent.ModelDelta{Item: place, Kind: it.Kind, Text: text[:n]})
		text = text[n:]
	}
}

// Message is the text of the last user message of a request.
func Message(req *agent.ModelRequest) string {
	text := ""
	for _, e := range req.Conversation {
		if user, ok := e.(*session.User); ok {
			text = user.Text
		}
	}
	return text
}

// Gate holds callers back, each under a name, until a test lets them pass.
type Gate struct {
	mu    sync.Mutex
	doors map[string]*door
}

type door struct {
	arrived chan struct{} // closed when the first caller is there
	open    chan struct{} // closed by Open
	once    sync.Once
	opened  sync.Once
}

// NewGate returns a gate with every door shut.
func NewGate() *Gate { return &Gate{doors: map[string]*door{}} }

func (g *Gate) door(name string) *door {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.doors[name]
	if d == nil {
		d = &door{arrived: make(chan struct{}), open: make(chan struct{})}
		g.doors[name] = d
	}
	return d
}

// Pass waits until the door is open, or ctx ends.
func (g *Gate) Pass(ctx context.Context, name string) error {
	d := g.door(name)
	d.once.Do(func() { close(d.arrived) })
	select {
	case <-d.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Arrived is closed once somebody has come to the door.
func (g *Gate) Arrived(name string) <-chan struct{} { return g.door(name).arrived }

// Open lets everybody through the door, now and later. It may be called twice.
func (g *Gate) Open(name string) {
	d := g.door(name)
	d.opened.Do(func() { close(d.open) })
}
