// Package agentsfile reads the agents file: the YAML that says which agents a
// worker runs, with which model, instructions and tools, without any Go.
// docs/agents-file.md is the reference of the file for those who write one.
//
// A file is read in three steps, and every step finds all its mistakes:
//
//	YAML to syntax tree      goccy/go-yaml; here the first mistake is the only one
//	tree to document         decode.go, by the Go types of document.go: unknown
//	                         fields, wrong types, variables that are not set
//	document to agents       build.go: names, models, tools, what goes together
//
// Every mistake names its place, FILE:LINE:COL and the path of the field, and what
// would be accepted. ${NAME} is put in after the YAML was parsed, so a value of the
// environment is always one text and never structure; such a value is in no
// error, which shows the text of the file instead.
//
// The package does not read the environment and knows no provider: both are handed
// in with [Options].
package agentsfile
