package session

import (
	"encoding/json"
	"slices"
)

// Usage is the roll-up of model calls: of one turn, or of a whole session.
type Usage struct {
	ModelCalls            int64          `json:"modelCalls"`
	TotalInputTokens      int64          `json:"totalInputTokens"`
	TotalOutputTokens     int64          `json:"totalOutputTokens"`
	TotalCachedTokens     int64          `json:"totalCachedTokens,omitempty"`
	TotalCacheWriteTokens int64          `json:"totalCacheWriteTokens,omitempty"`
	TotalReasoningTokens  int64          `json:"totalReasoningTokens,omitempty"`
	Models                []UsageOfModel `json:"models"`
}

// UsageOfModel is the part of a roll-up that one model has.
type UsageOfModel struct {
	ModelName string `json:"modelName"`
	Calls     int64  `json:"calls"`
	ModelUsage
}

// MarshalJSON implements [json.Marshaler]: no models are an empty list.
func (u Usage) MarshalJSON() ([]byte, error) {
	type plain Usage
	if u.Models == nil {
		u.Models = []UsageOfModel{}
	}
	return json.Marshal(plain(u))
}

// AddCall counts one call of a model. A provider that reports no usage is
// counted as a call with no tokens.
func (u *Usage) AddCall(model string, call *ModelUsage) {
	one := UsageOfModel{ModelName: model, Calls: 1}
	if call != nil {
		one.ModelUsage = *call
	}
	u.addModel(one)
}

// Add counts all that other has. A nil other has nothing.
func (u *Usage) Add(other *Usage) {
	if other == nil {
		return
	}
	for _, m := range other.Models {
		u.addModel(m)
	}
}

func (u *Usage) addModel(m UsageOfModel) {
	u.ModelCalls += m.Calls
	u.TotalInputTokens += m.InputTokens
	u.TotalOutputTokens += m.OutputTokens
	u.TotalCachedTokens += m.CachedTokens
	u.TotalCacheWriteTokens += m.CacheWriteTokens
	u.TotalReasoningTokens += m.ReasoningTokens
	at := slices.IndexFunc(u.Models, func(have UsageOfModel) bool { return have.ModelName == m.ModelName })
	if at < 0 {
		u.Models = append(u.Models, m)
		return
	}
	have := &u.Models[at]
	have.Calls += m.Calls
	have.InputTokens += m.InputTokens
	have.OutputTokens += m.OutputTokens
	have.CachedTokens += m.CachedTokens
	have.CacheWriteTokens += m.CacheWriteTokens
	have.ReasoningTokens += m.ReasoningTokens
}

// Clone returns a copy that can be added to.
func (u *Usage) Clone() *Usage {
	if u == nil {
		return &Usage{}
	}
	out := *u
	out.Models = slices.Clone(u.Models)
	return &out
}
