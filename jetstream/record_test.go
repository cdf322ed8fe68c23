package jetstream

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	r := record{
		attempt: 3, writer: "w", seq: 7,
		types: []string{"note", "-secret", "note", "-released"},
		data:  []byte("1\n2\n3\n4"),
	}
	got, err := parseRecord(r.header(), r.data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got, cmp.AllowUnexported(record{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	want := turn.LogState{Attempt: 3, WriterID: "w", NextSeq: 9, Released: true}
	if diff := cmp.Diff(want, got.state()); diff != "" {
		t.Errorf("state: -want +got\n%s", diff)
	}
	for after, want := range map[int64][]turn.Frame{
		6: {{Seq: 7, Type: "note", Data: []byte("1")}, {Seq: 8, Type: "note", Data: []byte("3")}},
		7: {{Seq: 8, Type: "note", Data: []byte("3")}},
		8: nil,
	} {
		frames, err := got.appendFrames(nil, after)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, frames); diff != "" {
			t.Errorf("after %d: -want +got\n%s", after, diff)
		}
	}
	r.types = []string{"-secret", "result"}
	if s := r.state(); !s.Finished || s.Released || s.NextSeq != 8 {
		t.Errorf("state of a result: %+v", s)
	}
}

func TestMalformedRecords(t *testing.T) {
	t.Parallel()
	good := record{attempt: 1, seq: 1, types: []string{"a"}}
	for name, value := range map[string]string{
		headerAttempt: "0", headerSeq: "0", headerTypes: "",
	} {
		for _, value := range []string{value, "-1", "x y", "99999999999999999999"} {
			if name == headerTypes && value != "" && value != "x y" {
				value += ","
			}
			h := good.header()
			h.Set(name, value)
			if _, err := parseRecord(h, nil); err == nil {
				t.Errorf("%s: %q was read", name, value)
			}
		}
		h := good.header()
		h.Del(name)
		if _, err := parseRecord(h, nil); err == nil {
			t.Errorf("no %s, but it was read", name)
		}
	}
	for _, data := range []string{"", "1", "1\n2\n3", "1\n", "\n1", "1\n2\n"} {
		r := record{attempt: 1, seq: 1, types: []string{"a", "b"}, data: []byte(data)}
		if frames, err := r.appendFrames(nil, 0); err == nil {
			t.Errorf("data %q for two events gave %v", data, frames)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("1", "w", "assistant_delta,-released,result", "1", []byte("{}\n{}\n{}"), int64(1))
	f.Add("", "", "", "", []byte(nil), int64(0))
	f.Add("2", "w", "-a,,b", "18446744073709551615", []byte("\n\n"), int64(-1))
	f.Fuzz(func(t *testing.T, attempt, writer, types, seq string, data []byte, after int64) {
		h := nats.Header{headerAttempt: {attempt}, headerWriter: {writer}, headerTypes: {types}, headerSeq: {seq}}
		r, err := parseRecord(h, data)
		if err != nil {
			return
		}
		again, err := parseRecord(r.header(), data)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if diff := cmp.Diff(r, again, cmp.AllowUnexported(record{})); diff != "" {
			t.Fatalf("-first +second\n%s", diff)
		}
		state := r.state()
		if state.NextSeq < 1 || state.Finished && state.Released {
			t.Fatalf("state %+v", state)
		}
		frames, err := r.appendFrames(nil, after)
		if err != nil {
			return
		}
		for i, f := range frames {
			if f.Seq <= after || f.Seq >= state.NextSeq || i > 0 && f.Seq != frames[i-1].Seq+1 {
				t.Fatalf("frame %d has number %d", i, f.Seq)
			}
			if strings.HasPrefix(f.Type, privateMark) || strings.ContainsRune(string(f.Data), '\n') {
				t.Fatalf("frame %+v", f)
			}
		}
	})
}
