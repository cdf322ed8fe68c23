package jetstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/turn"
)

func letter(of string) *turn.DeadLetter {
	s := submission(turn.LaneInteractive)
	s.Tenant = of
	return &turn.DeadLetter{
		Submission: s, Failures: 5, Error: &turn.Error{Code: turn.CodeInternal, Message: "panic: x"}, FailedAt: 7, CreatedAt: 3,
	}
}

func lettersOf(letters []*turn.DeadLetter) (ids []string) {
	for _, l := range letters {
		ids = append(ids, l.Submission.InvocationID)
	}
	return ids
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	k := setup(t)
	if found, next, err := k.DeadLetters(k.ctx, tenant, 0, 10); len(found) != 0 || next != 0 || err != nil {
		t.Errorf("before any: %v, %d, %v", found, next, err)
	}
	var buried []*turn.DeadLetter
	for i := range 6 {
		one := letter(tenant)
		if i == 2 {
			one = letter("other")
		}
		k.must(k.Bury(k.ctx, one))
		buried = append(buried, one)
	}
	second := *buried[0]
	second.Failures = 9
	k.must(k.Bury(k.ctx, &second)) // the first one stays
	got, err := k.DeadLetter(k.ctx, tenant, buried[0].Submission.InvocationID)
	k.must(err)
	if diff := cmp.Diff(buried[0], got, cmpopts.IgnoreFields(turn.Submission{}, "StoredAt")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	drop := buried[4].Submission.InvocationID
	for _, want := range []bool{true, false} {
		dropped, err := k.DropDeadLetter(k.ctx, tenant, drop)
		if k.must(err); dropped != want {
			t.Errorf("dropped: %t, want %t", dropped, want)
		}
	}
	if got, err := k.DeadLetter(k.ctx, tenant, drop); got != nil || err != nil {
		t.Errorf("after the drop: %v, %v", got, err)
	}
	if got, err := k.DeadLetter(k.ctx, "other", buried[0].Submission.InvocationID); got != nil || err != nil {
		t.Errorf("another tenant's: %v, %v", got, err)
	}
	var pages [][]string
	for cursor := uint64(0); ; {
		page, next, err := k.DeadLetters(k.ctx, tenant, cursor, 2)
		k.must(err)
		pages = append(pages, lettersOf(page))
		if cursor = next; next == 0 {
			break
		}
	}
	want := lettersOf([]*turn.DeadLetter{buried[5], buried[3], buried[1], buried[0]})
	if len(pages) != 2 || !slices.Equal(slices.Concat(pages...), want) {
		t.Errorf("pages %v, want %v", pages, want)
	}
}

// A request that fits a message may not fit with the letter around it: then the
// letter goes without the input.
func TestDeadLetterTooLarge(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{MaxPayload: 64 << 10}, Config{})
	one := letter(tenant)
	one.Submission.Request.Input.Message = turn.Text(strings.Repeat("x", 64<<10))
	k.must(k.Bury(k.ctx, one))
	got, err := k.DeadLetter(k.ctx, tenant, one.Submission.InvocationID)
	k.must(err)
	if !got.Submission.Request.Input.Empty() || got.Failures != 5 || one.Submission.Request.Input.Empty() {
		t.Errorf("%+v", got.Submission)
	}
	_, err = k.DeadLetter(k.ctx, tenant, "x.y")
	if err == nil {
		t.Error("a malformed id is taken")
	}
}
