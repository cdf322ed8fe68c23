package sessiontest

import (
	"encoding/json"

	"github.com/turnpool/turnpool/session"
)

var answerTests = map[string]func(*fixture){
	"Pending":            answerPending,
	"Closed":             answerClosed,
	"AnsweredTwice":      answeredTwice,
	"AlreadyClosed":      answerAlreadyClosed,
	"AlreadySuperseded":  answerAlreadySuperseded,
	"SupersedesAnswered": supersedesAnswered,
	"SupersededTwice":    supersededTwice,
	"SupersedesPartial":  supersedesPartial,
	"OwnAnswerWritten":   ownAnswerWritten,
	"OwnCalls":           answerOwnCalls,
	"MergesPartials":     mergesPartials,
	"Racing":             answersRace,
}

// asked is a thread that waits for the answers of two calls.
func asked(f *fixture) (question *session.Slice, loaded session.Base) {
	question = slice("inv_asks", 100, session.Base{},
		user("book"), calls("c1"), calls("c2"), yields("c1"), yields("c2"),
		&session.InvocationYield{YieldedToolIDs: []string{"c1", "c2"}})
	question.Turn.Status = session.StatusYieldedTool
	return question, f.commitAs(session.Committed, question).Head.Base()
}

func pending(callID, answeredBy string) session.PendingCall {
	p := session.PendingCall{
		CallID: callID, Name: "ask_guest", Args: json.RawMessage(`{"q":"Which night?"}`),
		InvocationID: "inv_asks", AgentName: "concierge", AnsweredBy: answeredBy,
	}
	if answeredBy != "" {
		p.Hold = session.Hold{AnsweredBy: answeredBy, Input: json.RawMessage(`{"answer":"Friday"}`)}
	}
	return p
}

func answerPending(f *fixture) {
	question, loaded := asked(f)
	f.same("pending", f.load(thread).Head.Pending, []session.PendingCall{pending("c1", ""), pending("c2", "")})
	partial := slice("inv_partial", 200, loaded, answers("c2"))
	f.commitAs(session.Committed, partial)
	head := f.wantLedger(question, partial).Head
	f.same("pending", head.Pending, []session.PendingCall{pending("c1", ""), pending("c2", "inv_partial")})
	f.same("open", head.Open(), []session.PendingCall{pending("c1", "")})
	f.same("listed", f.sessions(10)[0].Pending, head.Pending)
}

func answerClosed(f *fixture) {
	question, loaded := asked(f)
	all := slice("inv_all", 200, loaded, answers("c1"), answers("c2"), closes("c1"), closes("c2"), says("booked"))
	f.commitAs(session.Committed, all)
	if head := f.wantLedger(question, all).Head; len(head.Pending) != 0 {
		f.Fatalf("pending after both results: %+v", head.Pending)
	}
}

// wantTooLate demands that the slice ends in an error and leaves only its row.
func (f *fixture) wantTooLate(s *session.Slice) {
	f.Helper()
	before := f.load(thread)
	s.Scoped = []session.ScopedWrite{writes("by", `"late"`)}
	out := f.commitAs(session.CommitNone, s)
	if !out.TooLate || out.Turn.Status != session.StatusError || out.Turn.Version != 0 {
		f.Fatalf("late answer: %s", describe(out))
	}
	var told struct{ TooLate bool }
	if err := json.Unmarshal(out.Turn.Result, &told); err != nil || !told.TooLate {
		f.Fatalf("the result was made before it was known that it is too late: %s", out.Turn.Result)
	}
	f.wantRow(out)
	f.same("session", f.load(thread), before)
	if len(f.scopedState("user", "u1")) != 0 {
		f.Fatal("a late answer left scoped state")
	}
}

func answeredTwice(f *fixture) {
	question, loaded := asked(f)
	winner := slice("inv_winner", 300, loaded, answers("c1"))
	f.commitAs(session.Committed, winner)
	f.wantTooLate(slice("inv_late", 200, loaded, answers("c2"), answers("c1")))
	f.wantLedger(question, winner)
}

func answerAlreadyClosed(f *fixture) {
	question, loaded := asked(f)
	winner := slice("inv_winner", 300, loaded, answers("c1"), answers("c2"), closes("c1"), closes("c2"))
	f.commitAs(session.Committed, winner)
	f.wantTooLate(slice("inv_late", 200, loaded, answers("c1"), closes("c1")))
	f.wantTooLate(slice("inv_later", 400, loaded, answers("c2")))
	f.wantLedger(question, winner)
}

func answerAlreadySuperseded(f *fixture) {
	question, loaded := asked(f)
	message := slice("inv_message", 300, loaded, supersedes("c1"), supersedes("c2"), user("never mind"))
	f.commitAs(session.Committed, message)
	f.wantTooLate(slice("inv_late", 200, loaded, answers("c1"), answers("c2"), closes("c1"), closes("c2")))
	f.wantLedger(question, message)
}

// A message that only closed what somebody has answered leaves that out.
func supersedesAnswered(f *fixture) {
	question, loaded := asked(f)
	winner := slice("inv_winner", 200, loaded, answers("c1"), answers("c2"), closes("c1"), closes("c2"))
	message := slice("inv_message", 300, loaded, supersedes("c1"), supersedes("c2"), user("never mind"), says("fine"))
	f.commitAs(session.Committed, winner)
	out := f.commitAs(session.Merged, message)
	message.Events = message.Events[2:]
	f.wantLedger(question, winner, message)
	if out.FirstIndex != 10 || out.Head.EventCount != 12 {
		f.Fatalf("first index %d, head %+v", out.FirstIndex, out.Head)
	}
}

func supersededTwice(f *fixture) {
	question, loaded := asked(f)
	one := slice("inv_one", 200, loaded, supersedes("c1"), supersedes("c2"), user("one"))
	two := slice("inv_two", 300, loaded, supersedes("c1"), supersedes("c2"), user("two"))
	f.commitAs(session.Committed, one)
	f.commitAs(session.Merged, two)
	two.Events = two.Events[2:]
	f.wantLedger(question, one, two)
}

// An answer that nothing has acted on does not keep a message from closing the
// call; the history needs a result.
func supersedesPartial(f *fixture) {
	question, loaded := asked(f)
	partial := slice("inv_partial", 200, loaded, answers("c1"))
	message := slice("inv_message", 300, loaded, supersedes("c1"), supersedes("c2"), user("never mind"))
	f.commitAs(session.Committed, partial)
	f.commitAs(session.Merged, message)
	if head := f.wantLedger(question, partial, message).Head; len(head.Pending) != 0 {
		f.Fatalf("pending: %+v", head.Pending)
	}
}

// Another turn may have written this one's answer for it.
func ownAnswerWritten(f *fixture) {
	question, loaded := asked(f)
	other := slice("inv_other", 200, loaded, answers("c1"), answers("c2"))
	other.Events[0].Base().InvocationID = "inv_owner"
	owner := slice("inv_owner", 150, loaded, answers("c1"), says("noted"))
	f.commitAs(session.Committed, other)
	f.commitAs(session.Merged, owner)
	owner.Events = owner.Events[1:]
	f.wantLedger(question, other, owner)
}

// The calls of a turn's own are no business of the head's.
func answerOwnCalls(f *fixture) {
	first, loaded := started(f)
	winner := ask("inv_winner", 200, loaded)
	own := slice("inv_own", 300, loaded, user("two steps"), calls("c9"), closes("c9"), says("done"))
	f.commitAs(session.Committed, winner)
	f.commitAs(session.Merged, own)
	f.wantLedger(first, winner, own)
}

// Two that answer different calls do not stand in each other's way.
func mergesPartials(f *fixture) {
	question, loaded := asked(f)
	one, two := slice("inv_one", 200, loaded, answers("c1")), slice("inv_two", 150, loaded, answers("c2"))
	f.commitAs(session.Committed, one)
	f.commitAs(session.Merged, two)
	head := f.wantLedger(question, one, two).Head
	f.same("pending", head.Pending, []session.PendingCall{pending("c1", "inv_one"), pending("c2", "inv_two")})
}

// Of many that answer one call one wins; the ledger has its answer alone.
func answersRace(f *fixture) {
	question, loaded := asked(f)
	const n = 16
	outs := make([]session.Outcome, n)
	together(n, func(i int) {
		s := slice("inv_"+string(rune('a'+i)), 200, loaded, answers("c1"), closes("c1"))
		got, err := f.store.Commit(f.ctx, []*session.Slice{s})
		if err != nil || got[0].Err != nil {
			f.Errorf("commit %d: %v %v", i, err, got)
			return
		}
		outs[i] = got[0]
	})
	won := ""
	for _, out := range outs {
		switch {
		case out.TooLate:
		case won != "":
			f.Fatalf("%s and %s both answered the call", won, out.Turn.InvocationID)
		default:
			won = out.Turn.InvocationID
		}
	}
	got := f.load(thread)
	f.same("ledger", ids(got.Events), append(ids(question.Events), won+"/0", won+"/1"))
	f.wantFolded(got)
}
