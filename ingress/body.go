package ingress

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// readBody returns the request's JSON value. A body that says what it is must
// say JSON; a browser's must say so, for what says nothing is sent to any
// origin without asking it first.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkContentType(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > s.cfg.MaxBody {
		return nil, s.tooLarge()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, s.tooLarge()
	case err != nil:
		return nil, malformed("", "the body ended early or could not be read")
	}
	return body, nil
}

func (s *Server) tooLarge() error {
	return &fault{code: codeTooLarge, detail: fmt.Sprintf("a request body may have %d bytes", s.cfg.MaxBody)}
}

func checkContentType(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &fault{code: codeUnsupportedMedia, detail: "a body in the encoding " + strconv.Quote(shorten(encoding, 40)) + " is not taken"}
	}
	given := h.Get("Content-Type")
	if given == "" && h.Get("Origin") == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(given)
	charset, named := params["charset"]
	if err == nil && media == "application/json" && (!named || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return &fault{code: codeUnsupportedMedia, detail: "expected Content-Type: application/json, in UTF-8; got " + strconv.Quote(shorten(given, 80))}
}
