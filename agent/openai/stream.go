package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/turnpool/turnpool/agent"
)

// Bounds of what a server may send, far above what a model writes. The SDK's
// decoder bounds a line, but no event of many lines.
const (
	maxEvent  = 16 << 20 // bytes of one event, keep-alive comments before it included
	maxAnswer = 16 << 20 // bytes of all items
)

// After an answer, its stream is read to the end, since only then can the
// connection be used again. A server that does not end it loses the connection.
const (
	maxRest  = 64 << 10
	restTime = time.Second
)

// errCut is a stream that is over before its last event.
var errCut = errors.New("the stream was cut before the answer was whole")

// errTooLarge is an answer that no model gives.
var errTooLarge = &agent.ModelError{
	Status: http.StatusBadGateway, Message: fmt.Sprintf("the server sends more than %d MiB", maxAnswer>>20),
}

// stream sends a request and hands each event's data to take, until take reports
// that the answer is whole, or [DONE] comes. A stream that is over before is
// [errCut]. The request is closed when stream returns, and at once when ctx ends.
//
// The SDK's own stream is not read: it takes "error": null, which some servers
// have in every chunk, for a failure, and it closes the body before its end.
func stream(ctx context.Context, send func(context.Context, ...option.RequestOption) error, take func(data []byte) (whole bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var res *http.Response
	if err := send(ctx, option.WithResponseInto(&res)); err != nil {
		return fmt.Errorf("the request failed: %w", withoutAddress(err))
	}
	defer res.Body.Close()
	body := &boundedBody{ReadCloser: res.Body}
	events := ssestream.NewDecoder(&http.Response{Header: http.Header{}, Body: body})
	for {
		body.left = maxEvent
		if !events.Next() {
			return cut(events.Err())
		}
		data := bytes.TrimSpace(events.Event().Data)
		if len(data) == 0 {
			continue
		}
		whole := string(data) == "[DONE]"
		if !whole {
			var err error
			if whole, err = take(data); err != nil {
				return err
			}
		}
		if whole {
			rest(res.Body, cancel)
			return nil
		}
	}
}

// cut is the error of a stream that is over.
func cut(err error) error {
	switch {
	case err == nil:
		return errCut
	case errors.Is(err, errTooLarge):
		return err
	default:
		return fmt.Errorf("%w: %w", errCut, err)
	}
}

// rest reads what is left of a body, within bounds.
func rest(body io.Reader, cancel context.CancelFunc) {
	timer := time.AfterFunc(restTime, cancel)
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, maxRest)
}

// boundedBody fails when more is read than is left.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// malformed is an event that is not what the API says.
func malformed(data []byte, err error) error {
	return &agent.ModelError{Message: fmt.Sprintf("malformed event %.100q: %v", data, err)}
}
