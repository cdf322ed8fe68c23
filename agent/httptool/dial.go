package httptool

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

var errNotPublic = errors.New("the host is at a private address, which this tool may not use")

// The two transports of the process: tools with the same rights share their
// connections. They live as long as the process does; an idle connection is
// closed after a while.
var (
	publicOnly = sync.OnceValue(func() *http.Transport { return newTransport(func(at netip.AddrPort) bool { return public(at.Addr()) }) })
	anywhere   = sync.OnceValue(func() *http.Transport { return newTransport(func(netip.AddrPort) bool { return true }) })
)

func transport(allowPrivate bool) *http.Transport {
	if allowPrivate {
		return anywhere()
	}
	return publicOnly()
}

// newTransport returns a transport that connects to the addresses that are
// allowed.
func newTransport(allowed func(netip.AddrPort) bool) *http.Transport {
	dialer := &net.Dialer{
		Timeout: DefaultTimeout, // net/http lets a dial go on when its request has ended
		Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address) // resolved: what connect gets
			if err != nil || !allowed(at) {
				return errNotPublic
			}
			return nil
		},
	}
	return &http.Transport{
		// No Proxy: a proxy would dial for us, and its addresses are not checked.
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64, // as many as a worker runs turns, by default
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    DefaultTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// notPublic are the networks that IANA's special-purpose registries keep from
// the public internet, beside those that package netip knows. Of IPv6, all but
// 2000::/3 is refused anyway.
var notPublic = prefixes(
	"0.0.0.0/8",       // this host
	"100.64.0.0/10",   // carrier-grade NAT
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"240.0.0.0/4",     // reserved, and broadcast
	"2001::/23",       // protocol assignments, Teredo among them
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4: any IPv4 address in disguise
	"3fff::/20",       // documentation
)

var (
	global = netip.MustParsePrefix("2000::/3")
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // an IPv4 address in its last four bytes
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// public reports whether an address belongs to the public internet.
func public(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if addr.Is6() && !global.Contains(addr) || !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, prefix := range notPublic {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}
