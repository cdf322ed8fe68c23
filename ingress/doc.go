// Package ingress serves turns over HTTP: it accepts requests, queues them,
// relays what the turns stream, and answers where they stand. It runs no turn
// itself and keeps nothing: every ingress can answer for every turn.
//
//	POST   /v1/turns                  submit: waits for the result, 202 with a Prefer header, SSE by Accept
//	GET    /v1/turns/{id}             status or result; ?wait=N
//	GET    /v1/turns/{id}/events      SSE, resumable
//	POST   /v1/turns/{id}/cancel      abort
//	POST   /v1/sessions               create
//	GET    /v1/sessions               list
//	GET    /v1/sessions/{id}          one session
//	GET    /v1/sessions/{id}/events   its ledger
//	GET    /v1/sessions/{id}/turns    its turns
//	DELETE /v1/sessions/{id}          delete
//	GET    /v1/agents                 what workers have announced
//	GET    /healthz, /readyz, /openapi.json
//
// Every error is an application/problem+json body. After the first byte of a
// stream there is no such body any more: the stream ends, and its reader goes
// on from the last event it has.
//
// The package knows neither the broker nor the workers; it is given a [Queue],
// a [Log], a [Control] and a [Registry], and a session.Store.
package ingress
