package worker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// The races of two turns of one session, on a session that is new and on one
// that is there. The clock is handed in, and gates in the model say who is first.

func onSessions(t *testing.T, test func(t *testing.T, h *house, before []string)) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name+", new session", func(t *testing.T) {
			t.Parallel()
			test(t, newHouse(t, open(t)), nil)
		})
		t.Run(name+", session that is there", func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, open(t))
			h.rest(t, say("race", "before"))
			test(t, h, []string{"before", "re: before"})
		})
	}
}

func lines(before []string, more ...string) string {
	return strings.Join(append(append([]string{}, before...), more...), "\n")
}

// A slow turn that a newer message overtakes keeps its answer, and leaves
// nothing in the ledger, not even its question.
func TestRaceOvertaken(t *testing.T) {
	onSessions(t, func(t *testing.T, h *house, before []string) {
		gate := h.gated()
		asked := say("race", "first question")
		asked.Response = &turn.Response{Usage: true, State: true}
		asked.Input.State = session.State{"k": json.RawMessage(`1`)}
		slow := h.begin(t, gate, 10, asked)
		gate.Open("second question")
		fast := inTime(t, h.begin(t, gate, 11, say("race", "second question")))
		endedAs(t, fast, session.StatusCompleted, session.Committed, "")
		h.clock.Store(12)
		gate.Open("first question")
		got := inTime(t, slow)

		endedAs(t, got, session.StatusCompleted, session.Skipped, "")
		same(t, "answer", got.Output.Text, "re: first question")
		same(t, "ledger", h.ledger(t, "race"), lines(before, "second question", "re: second question"))
		same(t, "result by id", h.stored(t, got.InvocationID), got)
		// Its tokens were spent, and the session's roll-up is that of its ledger.
		same(t, "turn usage", got.TurnUsage, used(1))
		same(t, "usage", got.Usage, used(int64(1+len(before)/2)))
		same(t, "state", got.State, session.State{})
		same(t, "version", h.head(t, "race").Version, fast.Version)
	})
}

// The older message's turn commits first: the newer one's follows it.
func TestRaceInOrder(t *testing.T) {
	onSessions(t, func(t *testing.T, h *house, before []string) {
		gate := h.gated()
		older := h.begin(t, gate, 10, say("race", "A"))
		newer := h.begin(t, gate, 11, say("race", "B"))
		gate.Open("A")
		endedAs(t, inTime(t, older), session.StatusCompleted, session.Committed, "")
		gate.Open("B")
		got := inTime(t, newer)
		endedAs(t, got, session.StatusCompleted, session.Merged, "")
		same(t, "ledger", h.ledger(t, "race"), lines(before, "A", "re: A", "B", "re: B"))
		same(t, "version", got.Version, h.head(t, "race").Version)
		same(t, "result by id", h.stored(t, got.InvocationID), got)
	})
}

// Neither of two messages of the same millisecond is newer: both stay, in the
// order of their commits.
func TestRaceOfOneMillisecond(t *testing.T) {
	for _, order := range [][2]string{{"A", "B"}, {"B", "A"}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			onSessions(t, func(t *testing.T, h *house, before []string) {
				gate := h.gated()
				running := map[string]<-chan *turn.Result{
					"A": h.begin(t, gate, 10, say("race", "A")),
					"B": h.begin(t, gate, 10, say("race", "B")),
				}
				for i, want := range []session.CommitStatus{session.Committed, session.Merged} {
					gate.Open(order[i])
					endedAs(t, inTime(t, running[order[i]]), session.StatusCompleted, want, "")
				}
				same(t, "ledger", h.ledger(t, "race"),
					lines(before, order[0], "re: "+order[0], order[1], "re: "+order[1]))
			})
		})
	}
}

// A turn that only writes state has no message that could be overtaken.
func TestRaceWithoutAMessage(t *testing.T) {
	onSessions(t, func(t *testing.T, h *house, before []string) {
		gate := h.gated()
		door := ""
		if before != nil {
			door = "before" // the last message that the model sees
		}
		h.clock.Store(10)
		silent := resultOf(h.Turn(t.Context(), turn.Request{
			SessionID: "race", Input: turn.Input{State: session.State{"k": json.RawMessage(`1`)}},
		}))
		inTime(t, gate.Arrived(door))
		gate.Open("news")
		endedAs(t, inTime(t, h.begin(t, gate, 11, say("race", "news"))), session.StatusCompleted, session.Committed, "")
		gate.Open(door)
		endedAs(t, inTime(t, silent), session.StatusCompleted, session.Merged, "")
		same(t, "state", h.head(t, "race").State, session.State{"k": json.RawMessage(`1`)})
	})
}

// A session that was deleted while a turn ran takes nothing, and the caller
// still has the answer.
func TestRaceWithDeletion(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		h.rest(t, say("race", "before"))
		gate := h.gated()
		running := h.begin(t, gate, 10, say("race", "hi"))
		if err := store.Delete(t.Context(), turn.DefaultTenant, "session_race", 11); err != nil {
			t.Fatal(err)
		}
		gate.Open("hi")
		got := inTime(t, running)
		endedAs(t, got, session.StatusCompleted, session.Orphaned, "")
		same(t, "answer", got.Output.Text, "re: hi")
		same(t, "ledger", h.ledger(t, "race"), "")
	})
}

// Many first turns of one session: all see no session, one makes it, and none
// is lost or torn.
func TestRaceOfManyFirstTurns(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		const turns = 50
		h := newHouse(t, store)
		gate := h.gated()
		var running []<-chan *turn.Result
		for i := range turns {
			running = append(running, h.begin(t, gate, 10, say("race", fmt.Sprintf("question %d", i))))
		}
		for i := range turns {
			gate.Open(fmt.Sprintf("question %d", i))
		}
		count := map[session.CommitStatus]int{}
		for _, c := range running {
			got := inTime(t, c)
			count[got.CommitStatus]++
			endedAs(t, got, session.StatusCompleted, got.CommitStatus, "")
		}
		same(t, "commits", count, map[session.CommitStatus]int{session.Committed: 1, session.Merged: turns - 1})
		head := h.head(t, "race")
		same(t, "head", []int64{head.Version, head.EventCount, head.Usage.ModelCalls}, []int64{turns, 6 * turns, turns})
		said := strings.Split(h.ledger(t, "race"), "\n")
		same(t, "lines", len(said), 2*turns)
		seen := map[string]bool{}
		for i := 0; i+1 < len(said); i += 2 {
			if seen[said[i]] || said[i+1] != "re: "+said[i] {
				t.Errorf("%q is answered by %q, or there twice", said[i], said[i+1])
			}
			seen[said[i]] = true
		}
	})
}

// Turns of different times, all at once: whoever is skipped left nothing, whoever
// is not is there whole, and the newest message always is.
func TestRaceOfManyTimes(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		const turns = 50
		h := newHouse(t, store)
		gate := h.gated()
		running := map[string]<-chan *turn.Result{}
		for i := range turns {
			text := fmt.Sprintf("question %d", i)
			running[text] = h.begin(t, gate, int64(10+i), say("race", text))
		}
		for text := range running { // in any order
			gate.Open(text)
		}
		kept := map[string]bool{}
		for text, c := range running {
			switch got := inTime(t, c); got.CommitStatus {
			case session.Committed, session.Merged:
				kept[text], kept["re: "+text] = true, true
			case session.Skipped:
			default:
				t.Errorf("%s: %s %q %v", text, got.Status, got.CommitStatus, got.Error)
			}
		}
		if !kept[fmt.Sprintf("question %d", turns-1)] {
			t.Error("the newest message is not there")
		}
		there := map[string]bool{}
		for _, line := range strings.Split(h.ledger(t, "race"), "\n") {
			there[line] = true
		}
		same(t, "ledger", there, kept)
	})
}
