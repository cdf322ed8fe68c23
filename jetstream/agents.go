package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

const (
	// registryBuffer is how many announcements wait for the registry; what is
	// dropped is found at the next reading.
	registryBuffer = 256
	// registryEvery is how often the registry reads all agents, in case it missed
	// one.
	registryEvery = time.Minute
)

// Announce says that the agents are served, from now on for seven days. Agents
// of one name replace each other. An error may leave some announced.
func (c *Client) Announce(ctx context.Context, agents []turn.AgentInfo) error {
	for _, a := range agents {
		if err := c.announce(ctx, a); err != nil {
			return fmt.Errorf("announce agent %q: %w", a.Name, err)
		}
	}
	return nil
}

func (c *Client) announce(ctx context.Context, a turn.AgentInfo) error {
	if !turn.ValidName(a.Name) || !turn.ValidName(a.Pool) {
		return fmt.Errorf("malformed name, or that of its pool %q", a.Pool)
	}
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	m := nats.NewMsg(c.agentKeys() + a.Name)
	m.Data = data
	ack, err := c.store(ctx, m)
	if err == nil && ack.Error != nil {
		err = unavailable(ack.Error)
	}
	return err
}

// agentKeys leads the subjects of the bucket: a put is a message there.
func (c *Client) agentKeys() string { return "$KV." + c.cfg.agentsBucket() + "." }

// Registry knows the agents that were announced. Its methods may be used
// concurrently.
type Registry struct {
	client  *Client
	cancel  context.CancelFunc
	stopped chan struct{}
	updates chan *nats.Msg
	sub     *nats.Subscription

	mu     sync.RWMutex
	agents map[string]announced
}

// announced is an agent as last heard of.
type announced struct {
	info turn.AgentInfo
	at   time.Time
}

// WatchAgents returns a registry that knows all agents announced up to now, and
// goes on to learn of others until it is closed, across restarts of the broker.
func (c *Client) WatchAgents(ctx context.Context) (*Registry, error) {
	r := &Registry{
		client:  c,
		stopped: make(chan struct{}),
		updates: make(chan *nats.Msg, registryBuffer),
		agents:  make(map[string]announced),
	}
	// Listening comes first, so that nothing is missed in between. The bucket's
	// messages are heard as they are published: one that was not stored does no
	// harm here, and a subscription outlives the broker, which a consumer may not.
	sub, err := c.nc.ChanSubscribe(c.agentKeys()+"*", r.updates)
	if err != nil {
		return nil, fmt.Errorf("watch agents: %w", unavailable(err))
	}
	r.sub = sub
	reconnected := c.Reconnected()
	if err := r.load(ctx); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("watch agents: %w", err)
	}
	run, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go r.run(run, reconnected)
	return r, nil
}

// Close ends the registry and waits for it. It may be called more than once;
// what the registry knows stays readable.
func (r *Registry) Close() {
	r.cancel()
	<-r.stopped
}

// run ends with Close or with the client.
func (r *Registry) run(ctx context.Context, reconnected <-chan struct{}) {
	defer close(r.stopped)
	defer r.sub.Unsubscribe()
	ticker := time.NewTicker(registryEvery)
	defer ticker.Stop()
	for {
		select {
		case m := <-r.updates:
			r.put(m.Subject, m.Header, m.Data, time.Now())
		case <-reconnected:
			reconnected = r.client.Reconnected()
			r.reload(ctx)
		case <-ticker.C:
			r.reload(ctx)
		case <-r.client.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// reload reads all agents, again and again while the broker does not answer.
func (r *Registry) reload(ctx context.Context) {
	for pause := backoff(0); ; {
		err := r.load(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.client.log.Warn("could not read the agents", "error", err)
		if !r.client.pause(ctx, &pause) {
			return
		}
	}
}

func (r *Registry) load(ctx context.Context) error {
	stream := "KV_" + r.client.cfg.agentsBucket()
	for from, found := uint64(1), true; found; {
		var err error
		found, err = r.client.readBatch(ctx, stream, r.client.agentKeys()+"*", from, func(m *storedMsg) {
			from = m.sequence + 1
			r.put(m.subject, m.header, m.data, m.time)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// put takes one message of the bucket. What is read late does not replace what
// is newer.
func (r *Registry) put(subject string, header nats.Header, data []byte, at time.Time) {
	name := strings.TrimPrefix(subject, r.client.agentKeys())
	r.mu.Lock()
	defer r.mu.Unlock()
	if header.Get("KV-Operation") != "" { // a mark of deletion
		delete(r.agents, name)
		return
	}
	var info turn.AgentInfo
	err := json.Unmarshal(data, &info)
	if err == nil && (info.Name != name || !turn.ValidName(info.Pool)) {
		err = errors.New("malformed name")
	}
	if err != nil {
		r.client.log.Warn("agent cannot be read", "agent", name, "error", err)
		return
	}
	if known, ok := r.agents[name]; !ok || info.LastSeenAt >= known.info.LastSeenAt {
		r.agents[name] = announced{info, at}
	}
}

// kept reports whether the bucket still has the agent: it forgets without
// telling.
func (a announced) kept() bool { return time.Since(a.at) < agentsKept }

// Agents returns all agents, by name.
func (r *Registry) Agents() []turn.AgentInfo {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var agents []turn.AgentInfo
	for _, a := range r.agents {
		if a.kept() {
			agents = append(agents, a.info)
		}
	}
	slices.SortFunc(agents, func(a, b turn.AgentInfo) int { return cmp.Compare(a.Name, b.Name) })
	return agents
}

// Agent returns one agent.
func (r *Registry) Agent(name string) (turn.AgentInfo, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.agents[name]
	if !ok || !a.kept() {
		return turn.AgentInfo{}, false
	}
	return a.info, true
}

// Any reports whether there is an agent at all.
func (r *Registry) Any() bool { return len(r.Agents()) > 0 }
