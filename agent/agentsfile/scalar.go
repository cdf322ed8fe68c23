package agentsfile

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// text decodes a text, with its variables, where there may be any.
func (d *decoder) text(path string, node ast.Node) (string, bool) {
	var written string
	switch node := node.(type) {
	case *ast.StringNode:
		written = node.Value
	case *ast.LiteralNode:
		written = node.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		d.fault(path, "%s is no text; put it in quotes", kind(node))
		return "", false
	default:
		d.fault(path, "%s is no text", kind(node))
		return "", false
	}
	if !d.expand {
		return written, true
	}
	return d.expanded(path, written)
}

// expanded puts in the variables of a text: ${NAME} is the value of NAME, and $${
// is ${. A value is taken as it is, also if it looks like a variable.
func (d *decoder) expanded(path, written string) (string, bool) {
	if strings.Contains(written, "${") {
		d.written[path] = written
	}
	var out strings.Builder
	rest, ok := written, true
	for {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			return out.String(), ok
		}
		if strings.HasSuffix(before, "$") { // $${
			out.WriteString("{")
			rest = after
			continue
		}
		name, next, closed := strings.Cut(after, "}")
		switch value, set := d.lookup(name); {
		case !closed || !variable(name):
			d.fault(path, "${ begins no variable; want ${NAME} of letters, digits and _, or $${ for ${ itself")
			return "", false
		case !set:
			d.fault(path, "${%s} is not set in the environment", name)
			ok = false
		default:
			out.WriteString(value)
		}
		rest = next
	}
}

func (d *decoder) lookup(name string) (string, bool) {
	if !variable(name) {
		return "", false
	}
	value, set := d.getenv(name)
	if value != "" {
		d.secrets = append(d.secrets, value)
	}
	return value, set
}

func variable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// asWritten is the text at path as the file has it, for an error.
func (d *decoder) asWritten(path, value string) string {
	if written, ok := d.written[path]; ok {
		return written
	}
	return value
}

// withoutSecrets takes the values of variables out of a text that somebody else
// wrote.
func (d *decoder) withoutSecrets(text string) string {
	longestFirst := func(a, b string) int { return cmp.Compare(len(b), len(a)) }
	for _, secret := range slices.SortedFunc(slices.Values(d.secrets), longestFirst) {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

func (d *decoder) duration(path string, node ast.Node) time.Duration {
	const want = "%s is no duration; want one such as 30s or 15m"
	if _, number := node.(*ast.IntegerNode); number {
		d.fault(path, want, kind(node))
		return 0
	}
	text, ok := d.text(path, node)
	if !ok {
		return 0
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		d.fault(path, want, kind(node))
	}
	return value
}

var sizeUnits = []struct {
	suffix string
	bytes  uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

func (d *decoder) size(path string, node ast.Node) size {
	text := ""
	if _, number := node.(*ast.IntegerNode); number {
		text = node.GetToken().Value
	} else if text, _ = d.text(path, node); d.bad[path] {
		return 0
	}
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err == nil && n <= math.MaxInt64/unit.bytes {
			return size(n * unit.bytes)
		}
		break
	}
	d.fault(path, "%s is no size; want bytes such as 4096, 256KiB or 8MiB", kind(node))
	return 0
}

func (d *decoder) whole(path string, node ast.Node, most int64) int64 {
	if node, ok := node.(*ast.IntegerNode); ok {
		switch value := node.Value.(type) {
		case int64:
			if value <= most {
				return value
			}
		case uint64:
			if value <= uint64(most) {
				return int64(value)
			}
		}
	}
	d.fault(path, "%s is no whole number", kind(node))
	return 0
}

func (d *decoder) number(path string, node ast.Node) float64 {
	switch node := node.(type) {
	case *ast.FloatNode:
		return node.Value
	case *ast.IntegerNode:
		switch value := node.Value.(type) {
		case int64:
			return float64(value)
		case uint64:
			return float64(value)
		}
	}
	d.fault(path, "%s is no number", kind(node))
	return 0
}

func (d *decoder) boolean(path string, node ast.Node) bool {
	if node, ok := node.(*ast.BoolNode); ok {
		return node.Value
	}
	d.fault(path, "%s is neither true nor false", kind(node))
	return false
}

// plain decodes a node as JSON has it.
func (d *decoder) plain(path string, node ast.Node) any {
	switch node := node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		text, _ := d.text(path, node)
		return text
	case *ast.IntegerNode:
		return node.Value
	case *ast.FloatNode:
		return node.Value
	case *ast.BoolNode:
		return node.Value
	case *ast.SequenceNode:
		list := []any{}
		d.value(path, node, reflectOf(&list))
		return list
	case ast.MapNode:
		object := map[string]any{}
		d.value(path, node.(ast.Node), reflectOf(&object))
		return object
	}
	d.fault(path, "%s is nothing that JSON has", kind(node))
	return nil
}
