package ingress

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/turnpool/turnpool/turn"
)

// agentView is an agent as callers see it.
type agentView struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Pool        string          `json:"pool"`
	Available   bool            `json:"available"`
	LastSeenAt  int64           `json:"lastSeenAt"`
	Tools       []turn.ToolInfo `json:"tools"`
}

// page is a list, or a part of one.
type page[T any] struct {
	Items []T `json:"items"`
	// Next is the cursor of the page that follows, if any does.
	Next string `json:"next,omitempty"`
}

// listAgents serves what workers have announced, by name.
func (s *Server) listAgents(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, page[agentView]{Items: s.agents()})
	return nil
}

func (s *Server) agents() []agentView {
	since := s.cfg.Clock().Add(-s.cfg.AvailableFor).UnixMilli()
	views := []agentView{}
	for _, a := range s.deps.Registry.Agents() {
		views = append(views, agentView{
			Name: a.Name, Description: a.Description, Pool: a.Pool, Available: a.LastSeenAt >= since,
			LastSeenAt: a.LastSeenAt, Tools: append([]turn.ToolInfo{}, a.Tools...),
		})
	}
	slices.SortFunc(views, func(a, b agentView) int { return cmp.Compare(a.Name, b.Name) })
	return views
}
