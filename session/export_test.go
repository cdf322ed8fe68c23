package session

import (
	"maps"
	"slices"
)

// LedgerTypes lists the types that [Decode] knows.
func LedgerTypes() []string { return slices.Sorted(maps.Keys(constructors)) }
