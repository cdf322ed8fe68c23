package ingress

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// wanted is how a caller wants its answer.
type wanted struct {
	stream bool
	// wait is how long the caller is held for a result; 0 answers at once.
	wait time.Duration
	// applied goes into Preference-Applied when the answer is a 202.
	applied string
}

// wantedBy reads the Accept and Prefer headers. A stream needs no preference.
// "respond-async, wait=5" means, as RFC 7240 has it: wait, then answer without
// the result. Preferences that make no sense are ignored, as it asks.
func (s *Server) wantedBy(h http.Header) wanted {
	if acceptsStream(h.Values("Accept")) {
		return wanted{stream: true}
	}
	async, seconds := preferences(h.Values("Prefer"))
	want := wanted{wait: s.cfg.Wait}
	switch {
	case seconds >= 0:
		want.wait = s.boundedWait(seconds)
	case async:
		want.wait = 0
	}
	var applied []string
	if async {
		applied = append(applied, "respond-async")
	}
	if seconds >= 0 || !async {
		applied = append(applied, "wait="+strconv.Itoa(int(want.wait.Seconds())))
	}
	want.applied = strings.Join(applied, ", ")
	return want
}

// boundedWait is what the server makes of a caller's seconds.
func (s *Server) boundedWait(seconds int) time.Duration {
	if limit := int(s.cfg.Wait / time.Second); seconds > limit {
		return s.cfg.Wait
	}
	return time.Duration(seconds) * time.Second
}

// preferences returns the two preferences that turns know; seconds is -1 where
// there is none.
func preferences(values []string) (async bool, seconds int) {
	seconds = -1
	for _, value := range values {
		for preference := range strings.SplitSeq(value, ",") {
			token, _, _ := strings.Cut(preference, ";")
			name, argument, _ := strings.Cut(token, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				async = true
			case "wait":
				if n, ok := parseSeconds(strings.Trim(argument, ` "`)); ok {
					seconds = n
				}
			}
		}
	}
	return async, seconds
}

// maxSeconds is more than any wait may be; it stands for numbers above it.
const maxSeconds = 1 << 30

// parseSeconds reads a number of seconds, which is digits and nothing else.
func parseSeconds(text string) (int, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > maxSeconds {
		return maxSeconds, true
	}
	return n, true
}

// acceptsStream reports whether a stream of events is what the caller likes
// best: a client that lists JSON first, or gives it more weight, gets JSON.
func acceptsStream(values []string) bool {
	best, stream := 0.0, false
	for _, value := range values {
		for accepted := range strings.SplitSeq(value, ",") {
			media, params, _ := strings.Cut(accepted, ";")
			if weight := quality(params); weight > best {
				best, stream = weight, strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
			}
		}
	}
	return stream
}

func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0
			}
			return weight
		}
	}
	return 1
}
