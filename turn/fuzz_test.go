package turn_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// FuzzDecodeEvent: what is decoded can be encoded again as one line, and that is
// stable.
func FuzzDecodeEvent(f *testing.F) {
	for name, pair := range goldenEvents {
		for _, e := range pair {
			data, err := turn.EncodeEvent(e)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(name, data)
		}
	}
	f.Add(session.TypeUser, []byte(`{"type":"user","text":"\ud800"}`))
	f.Add("dream", []byte("{\"type\":\"dream\",\"a\":\"\xff\"}"))
	f.Add(turn.TypeResult, []byte(`{"output":{"items":[{"type":"new"},{"type":"user"}]}}`))
	f.Add(turn.TypeResult, []byte(`null`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		e, err := turn.DecodeEvent(name, data)
		if err != nil || e.Type() != name {
			return
		}
		turn.Private(e)
		once, err := turn.EncodeEvent(e)
		if err != nil {
			if len(data) > 9_000 {
				return // nested too deeply
			}
			t.Fatalf("%s %q is decoded and not encoded: %v", name, data, err)
		}
		if bytes.ContainsAny(once, "\n\x00") || !json.Valid(once) {
			t.Fatalf("%s %q is encoded as %q", name, data, once)
		}
		again, err := turn.DecodeEvent(name, once)
		if err != nil {
			t.Fatalf("%q is not decoded: %v", once, err)
		}
		if twice, err := turn.EncodeEvent(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoded as %q, then as %q: %v", once, twice, err)
		}
	})
}

func FuzzDecodeSubmission(f *testing.F) {
	for _, s := range []*turn.Submission{fullSubmission, minimalSubmission} {
		data, err := s.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`null`))
	f.Add([]byte(`{"tenant":"a","invocationId":"` + invocation + `","request":{"sessionId":"\u0000","input":{"state":{"a":null}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := turn.DecodeSubmission(data)
		if err != nil {
			return
		}
		if !turn.ValidName(s.Tenant) || !turn.ValidInvocationID(s.InvocationID) || s.Request.SessionID == "" {
			t.Fatalf("ids of %+v", s)
		}
		if limit := time.Minute; s.Timeout(limit) > limit || s.Timeout(limit) <= 0 {
			t.Fatalf("timeout %v", s.Timeout(limit))
		}
		s.Request.Input.Empty()
		once, err := s.Encode()
		if err != nil {
			t.Fatalf("%q is decoded and not encoded: %v", data, err)
		}
		again, err := turn.DecodeSubmission(once)
		if err != nil {
			t.Fatalf("%q is not decoded: %v", once, err)
		}
		twice, err := again.Encode()
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoded as %q, then as %q: %v", once, twice, err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	for _, s := range []string{`"hi"`, `{"text":"hi","media":[]}`, `{}`, `null`, `{"media":[{"type":"image"}]}`, `"\ud800"`, `7`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m turn.Message
		if err := json.Unmarshal(data, &m); err != nil {
			return
		}
		once, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%q is decoded and not encoded: %v", data, err)
		}
		var again turn.Message
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("%q is not decoded: %v", once, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", data, diff)
		}
	})
}
