package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// Client is one process's connection to the broker. Its methods may be used
// concurrently.
type Client struct {
	cfg   Config
	nc    *nats.Conn
	js    jetstream.JetStream
	log   *slog.Logger
	waits waits
	// closed is closed with the client, once.
	closed    chan struct{}
	closeOnce sync.Once

	mu sync.Mutex
	// link ends with the present connection; the zero link has ended.
	link link
	// reconnected is closed at the next reconnect, and replaced.
	reconnected chan struct{}
}

// link is the time from a connect to the next disconnect.
type link struct {
	ctx context.Context
	end context.CancelCauseFunc
}

var (
	errDisconnected = errors.New("disconnected")
	errClosed       = errors.New("client closed")
	errNoAnswer     = errors.New("no answer in time")
)

// waits is how long the broker's answers are waited for.
type waits struct {
	// ack is for the acknowledgement of a message, ask for the answer to a
	// question. A broker whose leader has gone does not answer what was asked
	// before there is a new one, so it must be asked again soon.
	ack, ask time.Duration
	// publish is how long a turn is published again and again.
	publish time.Duration
	// pull is how much later than a pull's own end the broker may say so.
	pull time.Duration
}

func waitsOf(timeout time.Duration) waits {
	return waits{ack: timeout, ask: timeout, publish: 5 * timeout, pull: timeout}
}

// closeTimeout bounds the last flush.
const closeTimeout = time.Second

// Connect connects, and creates the streams that are missing. A broker that is
// too old, or that cannot be reached now, is an error: [turn.ErrUnavailable] if
// trying again may help. Later on the connection is restored for as long as the
// client is not closed.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	c := &Client{
		cfg: cfg, log: cfg.Logger, waits: waitsOf(cfg.Timeout),
		closed: make(chan struct{}), reconnected: make(chan struct{}),
	}
	c.link.ctx, c.link.end = context.WithCancelCause(context.Background())
	c.nc, err = dial(ctx, cfg.URL, c.options())
	if malformed := (*url.Error)(nil); errors.As(err, &malformed) {
		// Whose own text has all of the address in it.
		return nil, fmt.Errorf("connect to NATS at %s: malformed address: %w", withoutSecrets(cfg.URL), malformed.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", withoutSecrets(cfg.URL), unavailable(err))
	}
	if err := c.setUp(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", withoutSecrets(cfg.URL), err)
	}
	return c, nil
}

// withoutSecrets is a list of addresses for people: without users, passwords and
// tokens.
func withoutSecrets(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, found := strings.Cut(u[:at], "://")
			if list[i] = u[at+1:]; found {
				list[i] = scheme + "://" + list[i]
			}
		}
	}
	return strings.Join(list, ",")
}

func (c *Client) setUp(ctx context.Context) (err error) {
	if err := checkVersion(c.nc.ConnectedServerVersion()); err != nil {
		return err
	}
	if c.js, err = jetstream.New(c.nc); err != nil {
		return err
	}
	return c.createMissing(ctx)
}

func (c *Client) options() []nats.Option {
	own := []nats.Option{
		nats.RetryOnFailedConnect(false),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		// What is sent while the connection is down must fail, not be sent
		// later: by then it may be another's turn.
		nats.ReconnectBufSize(-1),
		// A connection whose peer is gone is found out within 15 s, well before
		// the queue gives its turns away.
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		// Credentials that are refused now may be accepted again; giving up
		// would leave a process that hears nothing.
		nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.onDisconnect(err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { c.onReconnect(nc) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { c.onError(s, err) }),
	}
	return slices.Concat([]nats.Option{nats.Name(c.cfg.Name), nats.Timeout(c.cfg.Timeout)}, c.cfg.Options, own)
}

// dial connects, or gives up when ctx ends; the connection that comes too late
// is closed.
func dial(ctx context.Context, url string, options []nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(url, options...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		return r.nc, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Close sends what is buffered and closes the connection. Everything that waits
// on the client ends. It may be called more than once.
func (c *Client) Close() { c.closeOnce.Do(c.close) }

func (c *Client) close() {
	close(c.closed)
	if c.nc.IsConnected() {
		_ = c.nc.FlushTimeout(closeTimeout) // acks may be in the buffer
	}
	c.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.end(errClosed)
}

func (c *Client) onDisconnect(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.end(errDisconnected)
	select {
	case <-c.closed:
	default:
		c.log.Warn("disconnected from NATS", "error", err)
	}
}

func (c *Client) onReconnect(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.ctx, c.link.end = context.WithCancelCause(context.Background())
	close(c.reconnected)
	c.reconnected = make(chan struct{})
	c.log.Info("reconnected to NATS", "server", nc.ConnectedUrlRedacted())
}

// onError gets what no call returns. A subscription that was too slow is no
// error: its reader sees a gap and reads it back.
func (c *Client) onError(s *nats.Subscription, err error) {
	var subject string
	if s != nil {
		subject = s.Subject
	}
	if errors.Is(err, nats.ErrSlowConsumer) {
		c.log.Debug("slow reader", "subject", subject)
		return
	}
	c.log.Error("NATS", "subject", subject, "error", err)
}

// Reconnected returns a channel that is closed when the client next reconnects.
// For the reconnect after that, call it again.
func (c *Client) Reconnected() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reconnected
}

// linked returns a context that ends with the present connection.
func (c *Client) linked() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link.ctx
}

// Ping asks JetStream for the interactive lane. Nil says that turns can be
// published and received.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Now(ctx)
	return err
}

// Now returns the broker's time, in milliseconds since the epoch.
func (c *Client) Now(ctx context.Context) (int64, error) {
	name := c.cfg.laneStream(turn.LaneInteractive)
	var info struct {
		Error *jetstream.APIError `json:"error"`
		Time  time.Time           `json:"ts"`
	}
	if err := c.askAPI(ctx, "STREAM.INFO."+name, nil, &info); err != nil {
		return 0, fmt.Errorf("ask for stream %s: %w", name, err)
	}
	if info.Error != nil {
		return 0, fmt.Errorf("ask for stream %s: %w: %w", name, turn.ErrUnavailable, info.Error)
	}
	return info.Time.UnixMilli(), nil
}
