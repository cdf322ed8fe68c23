package jetstream

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/turn"
)

func (k *kit) registry() *Registry {
	k.t.Helper()
	r, err := k.WatchAgents(k.ctx)
	k.must(err)
	k.t.Cleanup(r.Close)
	return r
}

func agentInfo(name string, seen int64) turn.AgentInfo {
	return turn.AgentInfo{Name: name, Pool: "default", LastSeenAt: seen, Tools: []turn.ToolInfo{
		{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
	}}
}

func TestAgents(t *testing.T) {
	t.Parallel()
	k := setup(t)
	early := k.registry()
	if early.Any() || len(early.Agents()) != 0 {
		t.Error("agents before the first announcement")
	}
	k.must(k.Announce(k.ctx, []turn.AgentInfo{agentInfo("b", 1), agentInfo("a", 1)}))
	k.eventually("announced", func() bool { return len(early.Agents()) == 2 })
	for _, r := range []*Registry{early, k.registry()} {
		if diff := cmp.Diff([]turn.AgentInfo{agentInfo("a", 1), agentInfo("b", 1)}, r.Agents()); diff != "" {
			t.Error(diff)
		}
		got, ok := r.Agent("b")
		if diff := cmp.Diff(agentInfo("b", 1), got); !ok || diff != "" {
			t.Error(ok, diff)
		}
		if _, ok := r.Agent("c"); ok || !r.Any() {
			t.Error("agents that nobody announced")
		}
	}

	moved := agentInfo("a", 2)
	moved.Pool = "other"
	k.must(k.Announce(k.ctx, []turn.AgentInfo{moved}))
	k.eventually("moved", func() bool { a, _ := early.Agent("a"); return a.Pool == "other" })
	kv, err := k.js.KeyValue(k.ctx, k.cfg.agentsBucket())
	k.must(err)
	k.must(kv.Delete(k.ctx, "a"))
	k.eventually("deleted", func() bool { _, ok := early.Agent("a"); return !ok })
	early.Close()
	early.Close()
}

func TestAgentsAcrossRestart(t *testing.T) {
	t.Parallel()
	k := setup(t)
	r := k.registry()
	k.must(k.Announce(k.ctx, []turn.AgentInfo{agentInfo("a", 1)}))
	k.restart()
	k.eventually("announce", func() bool { return k.Announce(k.ctx, []turn.AgentInfo{agentInfo("b", 1)}) == nil })
	k.eventually("both", func() bool { return len(r.Agents()) == 2 })

	// What was announced while the registry's connection was down is read then.
	other := k.connect(Config{})
	k.must(r.sub.Unsubscribe())
	k.must(other.Announce(k.ctx, []turn.AgentInfo{agentInfo("c", 1)}))
	k.restart()
	k.eventually("all", func() bool { return len(r.Agents()) == 3 })
}

func TestOddAgents(t *testing.T) {
	t.Parallel()
	k := setup(t)
	r := k.registry()
	for _, a := range []turn.AgentInfo{{Name: "a.b", Pool: "default"}, {Name: "a", Pool: ""}} {
		if err := k.Announce(k.ctx, []turn.AgentInfo{a}); err == nil {
			t.Errorf("announced %+v", a)
		}
	}
	kv, err := k.js.KeyValue(k.ctx, k.cfg.agentsBucket())
	k.must(err)
	for _, value := range []string{"{", `{"name":"other","pool":"default"}`, `{"name":"odd"}`} {
		_, err := kv.Put(k.ctx, "odd", []byte(value))
		k.must(err)
	}
	k.must(k.Announce(k.ctx, []turn.AgentInfo{agentInfo("a", 2), agentInfo("a", 1), agentInfo("b", 1)}))
	k.eventually("announced", func() bool { _, ok := r.Agent("b"); return ok })
	if a, _ := r.Agent("a"); a.LastSeenAt != 2 {
		t.Errorf("an older announcement replaced a newer one: %+v", a)
	}
	if got := k.registry().Agents(); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestAgentsWithoutBroker(t *testing.T) {
	t.Parallel()
	k := setup(t)
	k.server.Stop()
	wantError(t, k.Announce(k.ctx, []turn.AgentInfo{agentInfo("a", 1)}), turn.ErrUnavailable)
	_, err := k.WatchAgents(k.ctx)
	wantError(t, err, turn.ErrUnavailable)
}
