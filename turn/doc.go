// Package turn holds the messages of one turn: the request that is accepted,
// the events that stream while it runs, the result that ends it, and the ids,
// names and codes in them. A turn is: load the session, append the input, run
// the agent once, commit, answer.
//
// The package also declares how a turn is carried between processes
// ([Delivery], [LogWriter], [LogReader]), so that those who run turns and those
// who relay them need not know the broker.
//
// The JSON of every type here is a wire format, pinned by the golden files in
// testdata.
package turn
