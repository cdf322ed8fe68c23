package postgres

import (
	"hash/fnv"
	"io"
	"slices"
)

// locks are the keys of advisory locks. Two things that share a key by chance
// only wait for each other.
type locks []int64

func (l *locks) session(tenant, id string)        { l.add("session", tenant, id) }
func (l *locks) turn(tenant, invocationID string) { l.add("turn", tenant, invocationID) }
func (l *locks) scope(tenant, scope, id string)   { l.add("scope", tenant, scope, id) }

func (l *locks) add(parts ...string) {
	hash := fnv.New64a()
	for _, part := range parts {
		io.WriteString(hash, part) // never fails
		hash.Write([]byte{0})
	}
	*l = append(*l, int64(hash.Sum64()))
}

// sorted returns the keys in the order in which everybody takes them.
func (l locks) sorted() []int64 {
	slices.Sort(l)
	return slices.Compact(l)
}
