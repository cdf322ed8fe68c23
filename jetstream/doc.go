// Package jetstream carries turns between processes over NATS JetStream: the
// turn queue, the event log of each turn, the stop signal, and what agents there
// are. It is the only package that knows the broker; others see the types of
// package turn.
//
// With the application's name in front (default "turnpool"):
//
//	turns.<lane>.<pool>.<agent>.<tenant>.<invocationId>   a queued turn
//	events.<tenant>.<invocationId>                        the log of a turn
//	live.<tenant>.<invocationId>                          the log's messages, republished once stored
//	control.<invocationId>                                "stop", not stored
//
// and the streams, named with the application's name in upper case:
//
//	TURNPOOL_INTERACTIVE   turns.interactive.>  work queue, one message a subject
//	TURNPOOL_BATCH         turns.batch.>        the same, apart
//	TURNPOOL_EVENTS        events.>             kept by age and size
//	KV TURNPOOL_agents     <agent>              what workers announce, 7 days
//
// A lane has one durable consumer a pool, named as the pool, with the filter
// turns.<lane>.<pool>.>; all workers of the pool share it.
//
// # The log
//
// A message of the log holds one or more events, one JSON a line, with the
// headers
//
//	Turn-Attempt   the attempt that wrote it
//	Turn-Writer    the writer that wrote it, one of possibly two of an attempt
//	Turn-Types     the events' types, separated by commas; "-" leads a private one's
//	Turn-Seq       the number of the first visible event in it, or of the next to come
//
// so that the last message is always enough to go on from. The last event of a
// finished turn is its result.
//
// Each message says which one must be the subject's last for it to be stored.
// That fences: of two writers one is refused, sees why, and stops. Events are
// published nowhere else. Readers listen to the republished messages, which come
// after they were stored and name the message before them, and read what they
// missed from the stream.
package jetstream
