package worker

import (
	"context"
	"sync"
)

// slots counts how many more turns may run.
type slots struct {
	mu   sync.Mutex
	free int
	// freed has a signal when a slot was given back since it was last read.
	freed chan struct{}
}

func newSlots(n int) *slots { return &slots{free: n, freed: make(chan struct{}, 1)} }

// tryTake takes a slot if more than reserved are free.
func (s *slots) tryTake(reserved int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free <= reserved {
		return false
	}
	s.free--
	return true
}

func (s *slots) give() {
	s.mu.Lock()
	s.free++
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// wait returns how many slots are free, once there is one; 0 when ctx ended.
func (s *slots) wait(ctx context.Context) int {
	for ctx.Err() == nil {
		if n := s.count(); n > 0 {
			return n
		}
		select {
		case <-s.freed:
		case <-ctx.Done():
		}
	}
	return 0
}
