package agentsfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a file.
type Error struct {
	File string
	// Line and Column count from 1.
	Line, Column int
	// Path is the field, such as agents[0].tools[1].http.url; empty: the file.
	Path string
	// Text says what is wrong and what is accepted. It has no value of the
	// environment in it.
	Text string
}

// Error implements the error interface: FILE:LINE:COL: PATH: TEXT, in one line.
func (e *Error) Error() string {
	place := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Path != "" {
		place += e.Path + ": "
	}
	return place + strings.Join(strings.Fields(e.Text), " ")
}

// Errors are all the mistakes in a file, in its order.
type Errors []*Error

// Error implements the error interface: one mistake a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, each := range e {
		lines[i] = each.Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}

// unknown says of a name that is none of those that are known which one was meant,
// or which ones there are.
func unknown(what, name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("%s; did you mean %s?", what, near)
	}
	if len(known) == 0 {
		return what + "; there is none"
	}
	return fmt.Sprintf("%s; want %s", what, strings.Join(known, ", "))
}

// nearest returns the known name that a slip of the pen away is, or nothing.
func nearest(name string, known []string) (near string) {
	least := max(1, len(name)/3) + 1
	for _, each := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(each)); d < least {
			near, least = each, d
		}
	}
	return near
}

// distance counts the letters to add, drop, change or swap with the next one, to
// get from a to b.
func distance(a, b string) int {
	var before []int // the row of two letters ago
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			changed := row[j]
			if a[i] != b[j] {
				changed++
			}
			next[j+1] = min(changed, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
