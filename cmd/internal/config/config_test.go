package config

import "testing"

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"1": 1, "4096": 4096, "256KiB": 256 << 10, "8MiB": 8 << 20, "4GiB": 4 << 30, "9000000000": 9000000000} {
		var got Size
		if err := got.Decode(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "KiB", "1.5MiB", "1 GB", "9999999999999GiB"} {
		var got Size
		if err := got.Decode(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
