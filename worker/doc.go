// Package worker runs turns: it loads the session, runs the agent, commits, and
// says how it ended.
//
// [Handler] runs one turn in the process, on any Store, with no broker. [Pool]
// takes turns from a queue and does the same for many at once: it keeps each
// turn's lease alive, streams its events into the turn's log, and settles it
// once it has an outcome. Both drive the same code:
//
//	load      the session at its head, and the turn's row     (load.go)
//	run       the agent, events into a sink                   (package agent)
//	slice     what is to be committed, and the result         (slice.go)
//	commit    with whoever else is ready                      (committer.go)
//
// The package knows neither the broker nor the database; it declares what it
// needs of them.
package worker
