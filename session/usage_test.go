package session_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	var one, two session.Usage
	one.AddCall("a", &session.ModelUsage{InputTokens: 100, OutputTokens: 10, CachedTokens: 50, CacheWriteTokens: 5, ReasoningTokens: 4})
	one.AddCall("b", &session.ModelUsage{InputTokens: 7, OutputTokens: 1})
	one.AddCall("a", &session.ModelUsage{InputTokens: 200, OutputTokens: 20, CachedTokens: 1, CacheWriteTokens: 1, ReasoningTokens: 1})
	two.AddCall("b", nil) // a provider that says nothing
	two.AddCall("c", &session.ModelUsage{InputTokens: 3})
	sum := one.Clone()
	sum.Add(&two)
	sum.Add(nil)
	want := &session.Usage{
		ModelCalls: 5, TotalInputTokens: 310, TotalOutputTokens: 31, TotalCachedTokens: 51, TotalCacheWriteTokens: 6, TotalReasoningTokens: 5,
		Models: []session.UsageOfModel{
			{ModelName: "a", Calls: 2, ModelUsage: session.ModelUsage{
				InputTokens: 300, OutputTokens: 30, CachedTokens: 51, CacheWriteTokens: 6, ReasoningTokens: 5,
			}},
			{ModelName: "b", Calls: 2, ModelUsage: session.ModelUsage{InputTokens: 7, OutputTokens: 1}},
			{ModelName: "c", Calls: 1, ModelUsage: session.ModelUsage{InputTokens: 3}},
		},
	}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("sum differs (-want +got):\n%s", diff)
	}
	if one.ModelCalls != 3 || len(one.Models) != 2 || one.Models[1].Calls != 1 {
		t.Errorf("adding to the clone changed the original: %+v", one)
	}
	data, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "usage", [][]byte{data, mustMarshal(t, session.Usage{})})
	var back session.Usage
	if err := json.Unmarshal(data, &back); err != nil || !cmp.Equal(&back, want) {
		t.Errorf("decoded: %+v %v", back, err)
	}
}

func TestUsageOfNothing(t *testing.T) {
	t.Parallel()
	var none *session.Usage
	u := none.Clone()
	u.AddCall("a", nil)
	if u.ModelCalls != 1 {
		t.Errorf("%+v", u)
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
