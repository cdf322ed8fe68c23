package sessiontest

import (
	"encoding/json"
	"strconv"
	"sync/atomic"

	"github.com/turnpool/turnpool/session"
)

var callTests = map[string]func(*fixture){
	"OneByOne":          callsOneByOne,
	"Together":          callsTogether,
	"Repeated":          callsRepeated,
	"TooLate":           callsTooLate,
	"Gone":              callsGone,
	"ReleasedOnError":   callsReleasedOnError,
	"ReleasedOnCancel":  callsReleasedOnCancel,
	"ReleasedOnSkip":    callsReleasedOnSkip,
	"GivenBack":         callsGivenBack,
	"OwnerEnded":        callsOwnerEnded,
	"OwnerCommitsLast":  callsOwnerCommitsLast,
	"OwnerCancelsLast":  callsOwnerCancelsLast,
	"Superseded":        callsSuperseded,
	"NotSuperseded":     callsNotSuperseded,
	"SupersededTwice":   callsSupersededTwice,
	"AnsweredAndClosed": callsAnsweredAndClosed,
	"AnswersRace":       callsAnswersRace,
	"CompletionRace":    callsCompletionRace,
}

// claims returns the claim of a turn of the thread.
func (f *fixture) claims(invocation string, answered ...string) session.CallClaim {
	f.Helper()
	c := session.CallClaim{Tenant: tenant, SessionID: thread, InvocationID: invocation, Epoch: f.base().Epoch}
	for _, callID := range answered {
		c.Answers = append(c.Answers, session.CallAnswer{CallID: callID, Input: json.RawMessage(`{"answer":"` + invocation + `"}`)})
	}
	return c
}

func (f *fixture) claimCalls(c session.CallClaim) session.ClaimedCalls {
	f.Helper()
	got, err := f.store.ClaimCalls(f.ctx, c)
	if err != nil {
		f.Fatalf("ClaimCalls of %s: %v", c.InvocationID, err)
	}
	return got
}

// wantClaim demands what a turn that answers gets: whether it resumes, which calls
// it holds, and which are open.
func (f *fixture) wantClaim(c session.CallClaim, resumes bool, held, open []string) session.ClaimedCalls {
	f.Helper()
	got := f.claimCalls(c)
	if got.Gone || got.TooLate != "" || got.Resumes != resumes {
		f.Fatalf("claim of %s: %+v", c.InvocationID, got)
	}
	f.same("held by "+c.InvocationID, callIDs(got.Held), held)
	f.same("open after "+c.InvocationID, callIDs(got.Open), open)
	return got
}

func (f *fixture) wantClaimTooLate(c session.CallClaim, callID string) {
	f.Helper()
	before := f.load(thread)
	if got := f.claimCalls(c); got.TooLate != callID || got.Resumes || len(got.Held) > 0 {
		f.Fatalf("late claim of %s: %+v", c.InvocationID, got)
	}
	f.same("session", f.load(thread), before)
}

func callIDs(calls []session.PendingCall) []string {
	ids := make([]string, len(calls))
	for i, p := range calls {
		ids[i] = p.CallID
	}
	return ids
}

// wantFree demands that nobody holds a call.
func (f *fixture) wantFree() {
	f.Helper()
	for _, p := range f.load(thread).Head.Pending {
		if p.Hold.Holder != "" || p.Closed {
			f.Fatalf("still held: %+v", p)
		}
	}
}

// ends is the slice of a turn of which nothing is kept.
func ends(invocation string, status session.Status, base session.Base, events ...session.Event) *session.Slice {
	s := slice(invocation, 200, base, events...)
	s.Turn.Status = status
	return s
}

// inputOf is an answer written for another turn.
func inputOf(owner, callID string) *session.ToolInput {
	return &session.ToolInput{
		EventBase: session.EventBase{InvocationID: owner}, CallID: callID, Name: "ask_guest",
		Input: json.RawMessage(`{"answer":"` + owner + `"}`),
	}
}

// resumed is the slice of the turn that answers c2 and goes on with both.
func resumed(base session.Base) *session.Slice {
	s := slice("inv_two", 300, base, answers("c1"), answers("c2"), closes("c1"), closes("c2"), says("booked"))
	s.Events[0].Base().InvocationID = "inv_one"
	return s
}

func callsOneByOne(f *fixture) {
	question, loaded := asked(f)
	f.wantClaim(f.claims("inv_one", "c1"), false, []string{"c1"}, []string{"c2"})
	f.same("version", f.base(), loaded)
	partial := slice("inv_one", 200, loaded, inputOf("inv_one", "c1"))
	f.commitAs(session.Committed, partial)
	f.wantFree()
	got := f.wantClaim(f.claims("inv_two", "c2"), true, []string{"c1", "c2"}, nil)
	for i, owner := range []string{"inv_one", "inv_two"} {
		hold := got.Held[i].Hold
		f.same("answer", hold.Input, json.RawMessage(`{"answer":"`+owner+`"}`))
		if hold.AnsweredBy != owner || hold.Holder != "inv_two" {
			f.Fatalf("hold: %+v", hold)
		}
	}
	all := slice("inv_two", 300, f.base(), answers("c2"), closes("c1"), closes("c2"), says("booked"))
	f.commitAs(session.Committed, all)
	if head := f.wantLedger(question, partial, all).Head; len(head.Pending) > 0 {
		f.Fatalf("pending: %+v", head.Pending)
	}
}

func callsTogether(f *fixture) {
	asked(f)
	got := f.wantClaim(f.claims("inv_all", "c2", "c1"), true, []string{"c1", "c2"}, nil)
	want := f.load(thread).Head.Pending
	f.same("held", got.Held, want)
}

// A turn that is delivered again gets what it got, whatever others have done.
func callsRepeated(f *fixture) {
	asked(f)
	one, two := f.claims("inv_one", "c1"), f.claims("inv_two", "c2")
	f.wantClaim(one, false, []string{"c1"}, []string{"c2"})
	f.wantClaim(one, false, []string{"c1"}, []string{"c2"})
	f.wantClaim(two, true, []string{"c1", "c2"}, nil)
	f.wantClaim(one, false, nil, nil)
	f.wantClaim(two, true, []string{"c1", "c2"}, nil)
}

func callsTooLate(f *fixture) {
	_, loaded := asked(f)
	f.wantClaim(f.claims("inv_one", "c1"), false, []string{"c1"}, []string{"c2"})
	f.wantClaimTooLate(f.claims("inv_late", "c2", "c1"), "c1") // and c2 is not taken
	f.wantClaimTooLate(f.claims("inv_late", "c9"), "c9")
	f.commitAs(session.Committed, slice("inv_one", 200, loaded, inputOf("inv_one", "c1")))
	f.wantClaimTooLate(f.claims("inv_late", "c1"), "c1")
	f.wantClaim(f.claims("inv_two", "c2"), true, []string{"c1", "c2"}, nil)
	f.wantClaimTooLate(f.claims("inv_late", "c2"), "c2")
	f.commitAs(session.Committed, slice("inv_two", 300, f.base(), answers("c2"), closes("c1"), closes("c2")))
	f.wantClaimTooLate(f.claims("inv_late", "c1"), "c1")
}

func callsGone(f *fixture) {
	asked(f)
	claim := f.claims("inv_one", "c1")
	f.delete(thread, 500)
	if got := f.claimCalls(claim); !got.Gone {
		f.Fatalf("claim on a deleted session: %+v", got)
	}
	f.create(session.NewSession{Tenant: tenant, ID: thread, CreatedAt: 600})
	if got := f.claimCalls(claim); !got.Gone {
		f.Fatalf("claim on another session: %+v", got)
	}
}

// reopened demands that both calls can be answered as if nothing had been.
func (f *fixture) reopened() {
	f.Helper()
	f.same("pending", f.load(thread).Head.Pending, []session.PendingCall{pending("c1", ""), pending("c2", "")})
	f.wantClaim(f.claims("inv_again", "c1", "c2"), true, []string{"c1", "c2"}, nil)
}

func callsReleasedOnError(f *fixture) {
	_, loaded := asked(f)
	f.claimCalls(f.claims("inv_all", "c1", "c2"))
	out := f.commitAs(session.CommitNone, ends("inv_all", session.StatusError, loaded, answers("c1"), answers("c2")))
	f.wantRow(out)
	f.same("version", f.base(), loaded)
	f.reopened()
}

// Whoever cancels a turn knows nothing of its calls.
func callsReleasedOnCancel(f *fixture) {
	asked(f)
	f.claimCalls(f.claims("inv_all", "c1", "c2"))
	cancel := ends("inv_all", session.StatusAborted, session.Base{})
	cancel.Turn.Attempt = 0
	f.commitAs(session.CommitNone, cancel)
	f.reopened()
}

func callsReleasedOnSkip(f *fixture) {
	_, loaded := asked(f)
	message := slice("inv_message", 300, loaded, supersedes("c1"), supersedes("c2"), userAt(300, "never mind"))
	claim := f.claims("inv_message")
	claim.Supersede = []string{"c1", "c2"}
	f.claimCalls(claim)
	f.commitAs(session.Merged, slice("inv_newer", 400, session.Base{Epoch: loaded.Epoch}, userAt(400, "hello")))
	f.commitAs(session.Skipped, message)
	f.reopened()
}

// The turn that went on fails: the answers of others are theirs again.
func callsGivenBack(f *fixture) {
	question, loaded := asked(f)
	f.claimCalls(f.claims("inv_one", "c1"))
	f.wantClaim(f.claims("inv_two", "c2"), true, []string{"c1", "c2"}, nil)
	f.commitAs(session.CommitNone, ends("inv_two", session.StatusError, loaded, answers("c2")))
	f.wantClaimTooLate(f.claims("inv_late", "c1"), "c1")
	partial := slice("inv_one", 200, loaded, inputOf("inv_one", "c1"))
	f.commitAs(session.Committed, partial)
	f.wantLedger(question, partial)
	f.wantClaim(f.claims("inv_three", "c2"), true, []string{"c1", "c2"}, nil)
	f.commitAs(session.CommitNone, ends("inv_three", session.StatusError, f.base(), answers("c2")))
	f.wantFree() // the answer in the ledger waits as before
	f.wantClaim(f.claims("inv_four", "c2"), true, []string{"c1", "c2"}, nil)
}

// The turn whose answer was taken over ends first, and the one that took it fails.
func callsOwnerEnded(f *fixture) {
	_, loaded := asked(f)
	f.claimCalls(f.claims("inv_one", "c1"))
	f.claimCalls(f.claims("inv_two", "c2"))
	f.commitAs(session.CommitNone, ends("inv_one", session.StatusAborted, loaded))
	f.wantClaimTooLate(f.claims("inv_late", "c1"), "c1") // it is being acted on
	f.commitAs(session.CommitNone, ends("inv_two", session.StatusError, loaded))
	f.reopened()
}

// The turn whose answer was taken over commits last, and leaves its answer out.
func callsOwnerCommitsLast(f *fixture) {
	question, loaded := asked(f)
	f.claimCalls(f.claims("inv_one", "c1"))
	f.claimCalls(f.claims("inv_two", "c2"))
	all := resumed(loaded)
	f.commitAs(session.Committed, all)
	f.wantClaim(f.claims("inv_one", "c1"), false, nil, nil)
	f.wantClaimTooLate(f.claims("inv_late", "c1"), "c1")
	if open := f.load(thread).Head.Open(); len(open) > 0 {
		f.Fatalf("open: %+v", open)
	}
	owner := slice("inv_one", 200, loaded, inputOf("inv_one", "c1"), says("noted"))
	f.commitAs(session.Merged, owner)
	owner.Events = owner.Events[1:]
	f.wantLedger(question, all, owner)
	f.wantFree()
}

func callsOwnerCancelsLast(f *fixture) {
	question, loaded := asked(f)
	f.claimCalls(f.claims("inv_one", "c1"))
	f.claimCalls(f.claims("inv_two", "c2"))
	all := resumed(loaded)
	f.commitAs(session.Committed, all)
	f.commitAs(session.CommitNone, ends("inv_one", session.StatusAborted, loaded))
	f.wantLedger(question, all)
}

func callsSuperseded(f *fixture) {
	question, loaded := asked(f)
	f.claimCalls(f.claims("inv_one", "c1"))
	claim := f.claims("inv_message")
	claim.Supersede = []string{"c1", "c2", "c9"}
	f.wantClaim(claim, false, []string{"c1", "c2"}, nil)
	f.wantClaim(claim, false, []string{"c1", "c2"}, nil)
	f.wantClaimTooLate(f.claims("inv_late", "c2"), "c2")
	message := slice("inv_message", 300, loaded, supersedes("c1"), supersedes("c2"), user("never mind"))
	f.commitAs(session.Committed, message)
	f.wantTooLate(slice("inv_one", 200, loaded, inputOf("inv_one", "c1")))
	f.wantLedger(question, message)
}

// A message does not close what a turn has begun to run.
func callsNotSuperseded(f *fixture) {
	question, loaded := asked(f)
	f.claimCalls(f.claims("inv_all", "c1", "c2"))
	claim := f.claims("inv_message")
	claim.Supersede = []string{"c1", "c2"}
	f.wantClaim(claim, false, nil, nil)
	message := slice("inv_message", 300, loaded, user("hello"))
	f.commitAs(session.Committed, message)
	all := slice("inv_all", 200, loaded, answers("c1"), answers("c2"), closes("c1"), closes("c2"), says("booked"))
	f.commitAs(session.Merged, all)
	f.wantLedger(question, message, all)
}

func callsSupersededTwice(f *fixture) {
	question, loaded := asked(f)
	var messages []*session.Slice
	for i, id := range []string{"inv_first", "inv_second"} {
		claim := f.claims(id)
		claim.Supersede = []string{"c1", "c2"}
		f.wantClaim(claim, false, []string{"c1", "c2"}, nil)
		messages = append(messages, slice(id, 300+int64(i), loaded, supersedes("c1"), supersedes("c2"), user(id)))
	}
	f.commitAs(session.Committed, messages[0])
	f.commitAs(session.Merged, messages[1])
	messages[1].Events = messages[1].Events[2:]
	f.wantLedger(question, messages[0], messages[1])
	f.wantFree()
}

// A message that comes with an answer closes the others, and goes on.
func callsAnsweredAndClosed(f *fixture) {
	asked(f)
	claim := f.claims("inv_both", "c1")
	claim.Supersede = []string{"c2"}
	got := f.wantClaim(claim, true, []string{"c1", "c2"}, nil)
	if got.Held[0].Hold.Closes || !got.Held[1].Hold.Closes {
		f.Fatalf("held: %+v", got.Held)
	}
}

func callsAnswersRace(f *fixture) {
	asked(f)
	const n = 16
	base := f.claims("")
	var won, late atomic.Int64
	together(n, func(i int) {
		claim := base
		claim.InvocationID = "inv_" + strconv.Itoa(i)
		claim.Answers = []session.CallAnswer{{CallID: "c1", Input: json.RawMessage(`1`)}}
		switch got, err := f.store.ClaimCalls(f.ctx, claim); {
		case err != nil:
			f.Errorf("ClaimCalls: %v", err)
		case got.TooLate == "c1":
			late.Add(1)
		case len(got.Held) == 1:
			won.Add(1)
		}
	})
	if won.Load() != 1 || late.Load() != n-1 {
		f.Fatalf("%d won and %d were too late", won.Load(), late.Load())
	}
}

// Of two that complete the answers together exactly one goes on.
func callsCompletionRace(f *fixture) {
	_, loaded := asked(f)
	base := f.claims("")
	for round := range 10 {
		var resumes atomic.Int64
		id := func(i int) string { return "inv_" + strconv.Itoa(round) + "_" + strconv.Itoa(i) }
		together(2, func(i int) {
			claim := base
			claim.InvocationID = id(i)
			claim.Answers = []session.CallAnswer{{CallID: []string{"c1", "c2"}[i], Input: json.RawMessage(`1`)}}
			got, err := f.store.ClaimCalls(f.ctx, claim)
			if err != nil || got.TooLate != "" {
				f.Errorf("ClaimCalls: %v %+v", err, got)
			}
			if got.Resumes {
				resumes.Add(1)
			}
		})
		if resumes.Load() != 1 {
			f.Fatalf("round %d: %d turns go on", round, resumes.Load())
		}
		for i := range 2 {
			f.commitAs(session.CommitNone, ends(id(i), session.StatusAborted, loaded))
		}
	}
	f.reopened()
}
