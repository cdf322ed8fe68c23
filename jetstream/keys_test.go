package jetstream

import (
	"strings"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/turn"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	k := setup(t)
	key := strings.Repeat("0a", 32)
	first := turn.KeyEntry{Body: "b1", InvocationID: "inv_1", SessionID: "session_1"}
	other := turn.KeyEntry{Body: "b2", InvocationID: "inv_2", SessionID: "session_2"}
	claim := func(tenant string, e, want turn.KeyEntry, wantMine bool) {
		t.Helper()
		have, mine, err := k.ClaimKey(k.ctx, tenant, key, e)
		if k.must(err); have != want || mine != wantMine {
			t.Errorf("claimed %+v, mine %t", have, mine)
		}
	}
	claim(tenant, first, first, true)
	claim(tenant, first, first, true) // the same try again
	claim(tenant, other, first, false)
	claim("other", other, other, true)
	k.must(k.ReleaseKey(k.ctx, tenant, key, other)) // not its own
	claim(tenant, other, first, false)
	k.must(k.ReleaseKey(k.ctx, tenant, key, first))
	k.must(k.ReleaseKey(k.ctx, tenant, key, first))
	claim(tenant, other, other, true)
	for _, bad := range []string{"", "x", strings.Repeat("0A", 32), strings.Repeat("*", 64)} {
		if _, _, err := k.ClaimKey(k.ctx, tenant, bad, first); err == nil {
			t.Errorf("key %q is taken", bad)
		}
	}
}

// Of many who claim a key at once one gets it, and all learn whose it is.
func TestKeyRace(t *testing.T) {
	t.Parallel()
	k := setup(t)
	key := strings.Repeat("f", 64)
	const n = 20
	entries := make([]turn.KeyEntry, n)
	mine := make([]bool, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			e := turn.KeyEntry{Body: "b", InvocationID: turn.NewInvocationID()}
			if entries[i], mine[i], err = k.ClaimKey(k.ctx, tenant, key, e); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	winners := 0
	for i := range n {
		if mine[i] {
			winners++
		}
		if entries[i] != entries[0] {
			t.Errorf("%+v and %+v", entries[i], entries[0])
		}
	}
	if winners != 1 {
		t.Errorf("%d got the key", winners)
	}
}
