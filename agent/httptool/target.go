package httptool

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// target is a URL with placeholders.
type target struct {
	url   *url.URL // as it was written
	parts []part
}

// part is a stretch of a URL: text, or a placeholder if it has a name.
type part struct {
	text  string
	name  string
	query bool // behind the "?"
}

// errURL does not say which part was wrong: the parser's words for it quote the
// URL, and that may have a secret.
var errURL = errors.New("it is no URL; want http:// or https:// with a host, such as https://api.example.com/stays/{ref}, " +
	"with placeholders in path and query only")

// parseTarget reads a URL with placeholders. Its errors have nothing of the URL
// but names of placeholders.
func parseTarget(raw string) (*target, error) {
	u, err := url.Parse(raw) // refuses braces in the host
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", !validPort(u.Port()):
		return nil, errURL
	case strings.Contains(raw, "#"):
		return nil, errors.New("want no fragment (#…), which is not sent")
	}
	t := &target{url: u}
	beforeQuery, query, _ := strings.Cut(raw, "?")
	if err := t.split(beforeQuery, false); err != nil {
		return nil, err
	}
	if query != "" {
		t.parts = append(t.parts, part{text: "?", query: true})
		if err := t.split(query, true); err != nil {
			return nil, err
		}
	}
	if dotted(strings.NewReplacer("{", "", "}", "").Replace(u.Path)) {
		return nil, errors.New(`want no "." or ".." in the path`)
	}
	return t, nil
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// split adds the parts of text.
func (t *target) split(text string, query bool) error {
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		if strings.Contains(before, "}") {
			return errors.New("a } has no {; as text it is %7D")
		}
		t.parts = append(t.parts, part{text: before, query: query})
		if !found {
			return nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name == "" || strings.ContainsAny(name, "{/?&") {
			return errors.New("a { opens no {name}; as text it is %7B")
		}
		t.parts = append(t.parts, part{name: name, query: query})
		text = after
	}
	return nil
}

// names are the placeholders, each once.
func (t *target) names() (names []string) {
	for _, p := range t.parts {
		if p.name != "" && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// private reports whether the host can only be a private address. Of most names
// that is known when they are dialled.
func (t *target) private() bool {
	host := strings.ToLower(strings.TrimSuffix(t.url.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return !public(addr)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// fill takes the arguments that have a place in the URL out of args and returns
// the URL with them.
func (t *target) fill(args map[string]any) (*url.URL, error) {
	var filled strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			filled.WriteString(p.text)
			continue
		}
		value, ok := scalar(args[p.name])
		if !ok || value == "" {
			return nil, fmt.Errorf("argument %q is part of the URL: want a string, a number or a boolean, not empty", p.name)
		}
		if p.query {
			filled.WriteString(url.QueryEscape(value))
		} else {
			filled.WriteString(url.PathEscape(value))
		}
	}
	u, err := url.Parse(filled.String())
	if err != nil {
		return nil, errors.New("the arguments make no URL")
	}
	if dotted(u.Path) && len(t.names()) > 0 { // a server may take it for a way up
		return nil, fmt.Errorf(`the arguments %s make "." or ".." of a part of the path`, strings.Join(t.names(), ", "))
	}
	for _, name := range t.names() {
		delete(args, name)
	}
	return u, nil
}

// dotted reports whether a part of the path is "." or "..".
func dotted(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
