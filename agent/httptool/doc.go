// Package httptool makes tools that are HTTP calls, so that a tool needs no Go:
// an agents file, or a program, says which request a call is.
//
// What becomes of the arguments, which are always a JSON object:
//
//	{name} in the URL        the argument, escaped; it is then not sent again
//	POST, PUT, PATCH         the JSON body is the other arguments
//	DELETE                   the same, and no body if there are none
//	GET, HEAD                the other arguments are query parameters
//	a yielding tool          the JSON body is {"args": …, "answer": …}
//
// A placeholder may stand in the path and in the query, never in the host; it
// takes a string, a number or a boolean that is not empty. As a query parameter,
// a list of such values repeats the name, null is left out, and anything else is
// its JSON text. A parameter that the URL has already cannot be given again.
//
// What becomes of the answer:
//
//	2xx with JSON            the result, as it is
//	2xx with other text      the result, as a JSON string
//	2xx without a body       the result is null
//	any other status         an error: the status and the start of the body
//
// Every request has an Idempotency-Key header with the call's token, which is
// the same on every attempt of a turn, and the keys of a body are in order, so
// that a server sees the same request again. For the same reason net/http repeats
// a request itself when a kept connection turns out to be dead.
//
// Unless a tool may use private addresses, it connects to public ones only. It is
// the address of each connection that is checked, after the name was resolved, so
// neither a redirect nor a name that changes its address leads inside. Proxies of
// the environment are not used. Up to five redirects are followed; once one leads
// to another host, the tool's own headers are not sent any more.
//
// Errors, which the model sees, have no header values, no URL and no addresses.
package httptool
