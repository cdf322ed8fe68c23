package health

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	well := func(context.Context) error { return nil }
	view, failures := Check(t.Context(), map[string]func(context.Context) error{"a": well, "b": well})
	if diff := cmp.Diff(View{OK, map[string]string{"a": OK, "b": OK}}, view); diff != "" || len(failures) > 0 {
		t.Errorf("%s%v", diff, failures)
	}
	// One that hangs takes no time from the others.
	view, failures = Check(t.Context(), map[string]func(context.Context) error{
		"a": func(ctx context.Context) error { return ctx.Err() },
		"b": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"c": func(context.Context) error { return down },
	})
	if diff := cmp.Diff(View{Unavailable, map[string]string{"a": OK, "b": Unavailable, "c": Unavailable}}, view); diff != "" {
		t.Error(diff)
	}
	if failures["a"] != nil || !errors.Is(failures["b"], context.DeadlineExceeded) || failures["c"] != down {
		t.Errorf("failures: %v", failures)
	}
}
