// Package agent runs an agent once: it calls the model, runs the tools that the
// model asks for, and goes on until the model answers or something stops it.
//
// An [Agent] is a value: a name, a [Model], instructions, tools and limits. A
// [Run] is one run of it on a session. The run does not touch a database or a
// broker: it reads the session that it is given, streams events into a [Sink],
// and returns an [Outcome] with the events to commit.
//
// One run, in order:
//
//	user                      appended first, not streamed
//	invocation_start
//	state_change              of the input's state
//	each step, from 1:
//	  model_start, deltas, model_end
//	  thought, assistant, tool_call     what the model answered
//	  tool_result                       streamed as calls finish, kept in the model's order
//	invocation_end
//
// Models are adapters behind the [Model] interface: agent/script is the scripted
// one. Package agent/agenttest has gates and counters for tests.
package agent
