package agentsfile

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// position is a place in the file, from 1.
type position struct{ line, column int }

var start = position{1, 1}

// parse returns the syntax tree of the file's one document, nil if it is empty.
func parse(name string, data []byte) (root ast.Node, bad *Error) {
	fault := func(at position, text string) *Error {
		return &Error{File: name, Line: at.line, Column: at.column, Text: text}
	}
	defer func() { // the parser panics on some texts that are no YAML
		if recover() != nil {
			root, bad = nil, fault(start, "it is no YAML")
		}
	}()
	file, err := parser.ParseBytes(bytes.TrimPrefix(data, []byte("\ufeff")), 0)
	if err != nil {
		var where yaml.Error
		if errors.As(err, &where) {
			return nil, fault(positionOf(where.GetToken()), "it is no YAML: "+where.GetMessage())
		}
		return nil, fault(start, "it is no YAML: "+err.Error())
	}
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if root != nil {
			return nil, fault(positionAt(doc.Body), "it has a second document; want one")
		}
		root = doc.Body
	}
	return root, nil
}

func positionOf(t *token.Token) position {
	if t == nil || t.Position == nil {
		return start
	}
	return position{max(1, t.Position.Line), max(1, t.Position.Column)}
}

// positionAt is where a node begins.
func positionAt(node ast.Node) position {
	switch node := node.(type) {
	case *ast.MappingNode:
		if !node.IsFlowStyle && len(node.Values) > 0 {
			return positionAt(node.Values[0])
		}
	case *ast.MappingValueNode:
		return positionAt(node.Key) // its own is the colon's
	case *ast.LiteralNode:
		return positionOf(node.Start)
	}
	return positionOf(node.GetToken())
}

// aliases says for each alias what it stands for: the anchor of its name that was
// last before it.
type aliases struct {
	byName map[string]ast.Node
	nodes  map[*ast.AliasNode]ast.Node
}

// Visit implements [ast.Visitor].
func (a *aliases) Visit(node ast.Node) ast.Visitor {
	switch node := node.(type) {
	case *ast.AnchorNode:
		a.byName[node.Name.String()] = node.Value
	case *ast.AliasNode:
		a.nodes[node] = a.byName[node.Value.String()]
	}
	return a
}

func findAliases(root ast.Node) map[*ast.AliasNode]ast.Node {
	a := &aliases{byName: map[string]ast.Node{}, nodes: map[*ast.AliasNode]ast.Node{}}
	ast.Walk(a, root)
	return a.nodes
}

// entry is a key of a mapping with its value.
type entry struct {
	key   string
	at    position // of the key
	value ast.Node
}

// entries are those of a mapping, in its order, then those that it merges (<<)
// and does not have itself. It reports false if the node is no mapping.
func (d *decoder) entries(path string, node ast.Node) (list []entry, ok bool) {
	mapping, ok := node.(ast.MapNode)
	if !ok {
		return nil, false
	}
	var merged []entry
	known := map[string]bool{}
	for each := mapping.MapRange(); each.Next(); {
		if each.Key().IsMergeKey() {
			merged = append(merged, d.merge(path, each.Value())...)
			continue
		}
		e := entry{at: positionAt(each.Key()), value: each.Value()}
		if e.key, ok = keyText(each.Key()); !ok {
			d.faultAt(path, e.at, "a key is no plain text")
			continue
		}
		known[e.key] = true
		list = append(list, e)
	}
	for _, e := range merged {
		if !known[e.key] {
			known[e.key] = true
			list = append(list, e)
		}
	}
	return list, true
}

// merge are the entries of a mapping, or of a list of them, behind a <<.
func (d *decoder) merge(path string, node ast.Node) (list []entry) {
	at := positionAt(node)
	if node = d.resolve(path, node); node == nil || !d.enter(path) {
		return nil
	}
	defer d.leave()
	if sequence, ok := node.(*ast.SequenceNode); ok {
		for _, each := range sequence.Values {
			list = append(list, d.merge(path, each)...)
		}
		return list
	}
	list, ok := d.entries(path, node)
	d.nodes += len(list) // each merge copies them
	if !ok {
		d.faultAt(path, at, "<< merges mappings; want one, or a list of them")
	}
	return list
}

func keyText(key ast.Node) (string, bool) {
	switch key := key.(type) {
	case *ast.StringNode:
		return key.Value, true
	case *ast.AnchorNode:
		return keyText(key.Value)
	case *ast.MappingKeyNode:
		return keyText(key.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return key.GetToken().Value, true
	}
	return "", false
}

// kind names what a node is, for people.
func kind(node ast.Node) string {
	switch node := node.(type) {
	case *ast.StringNode:
		return fmt.Sprintf("%q", clip(node.Value))
	case *ast.LiteralNode:
		return fmt.Sprintf("%q", clip(node.Value.Value))
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	}
	return clip(node.GetToken().Value)
}

// clip shortens a text that an error quotes.
func clip(text string) string {
	const most = 40
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most]) + "…"
}
