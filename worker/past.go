package worker

import (
	"errors"
	"io"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// past is what a turn's log tells of the attempts before.
type past struct {
	// base is the session that the first attempt loaded.
	base session.Base
	// finished are the events that stay, and rewindTo the number of the last of
	// them: readers discard what they have after it. 0: the turn starts over.
	finished []session.Event
	rewindTo int64
	// progress: the last attempt finished something.
	progress bool
}

// past reads the log. A turn that has no log, or whose log was cut off, starts over
// on the session as it is now.
func (v *visit) past(last turn.LogState, now session.Base) (past, error) {
	p := past{base: now}
	if last.Sequence == 0 {
		return p, nil
	}
	err := v.persist("log not read", func() error {
		h, err := v.readLog(last.NextSeq)
		switch {
		case errors.Is(err, turn.ErrExpired), errors.Is(err, io.EOF):
			v.log.Warn("the log was cut off, the turn starts over on the session as it is now", "error", err)
			return nil
		case err == nil && h.based:
			p = h.past()
		}
		return err
	})
	return p, err
}

// readLog reads the events that were visible before the one of the given number.
func (v *visit) readLog(end int64) (history, error) {
	h := history{next: 1}
	reader, err := v.deps.Log.Follow(v.lease.held, v.turn.Tenant, v.turn.InvocationID, 0)
	if err != nil {
		return h, err
	}
	defer reader.Close()
	for h.next < end {
		frames, err := reader.Next(v.lease.held)
		if err == nil {
			err = h.add(frames)
		}
		if err != nil {
			return h, err
		}
	}
	return h, nil
}

// history collects a log's events, as a reader who honours rewind has them.
type history struct {
	base   session.Base
	based  bool
	events []session.Event
	seqs   []int64 // of events
	// restart is the number of the last restart, next that of the event to come.
	restart, next int64
}

func (h *history) add(frames []turn.Frame) error {
	for _, f := range frames {
		h.next = f.Seq + 1
		if f.Type == turn.TypeAssistantDelta || f.Type == turn.TypeThoughtDelta {
			continue
		}
		e, err := turn.DecodeEvent(f.Type, f.Data)
		if err != nil {
			return err
		}
		switch e := e.(type) {
		case *turn.Restart:
			h.loadedOn(e.Base)
			h.rewind(e.RewindTo)
			h.restart = f.Seq
			continue
		case *session.InvocationStart:
			h.loadedOn(session.Base{Epoch: e.Epoch, Version: e.Version, EventCount: e.EventCount})
		}
		if e, ok := e.(session.Event); ok {
			h.events, h.seqs = append(h.events, e), append(h.seqs, f.Seq)
		}
	}
	return nil
}

// loadedOn notes the session of the first attempt: the first one that the log has.
func (h *history) loadedOn(base session.Base) {
	if !h.based {
		h.base, h.based = base, true
	}
}

func (h *history) rewind(to int64) {
	n := len(h.seqs)
	for n > 0 && h.seqs[n-1] > to {
		n--
	}
	h.events, h.seqs = h.events[:n], h.seqs[:n]
}

func (h *history) past() past {
	p := past{base: h.base}
	if n := agent.Finished(h.events); n > 0 {
		p.finished, p.rewindTo = h.events[:n], h.seqs[n-1]
		p.progress = p.rewindTo > h.restart
	}
	return p
}
