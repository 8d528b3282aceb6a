package wire

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewTransport(t *testing.T) {
	transport := NewTransport()
	assert.Equal(t, uint16(tls.VersionTLS12), transport.TLSClientConfig.MinVersion)
	assert.True(t, transport.ForceAttemptHTTP2)
	require.NotNil(t, transport.HTTP2)
	assert.Positive(t, transport.HTTP2.SendPingTimeout)
	assert.Positive(t, transport.HTTP2.PingTimeout)
	assert.Less(t, transport.HTTP2.SendPingTimeout+transport.HTTP2.PingTimeout, 30*time.Second, "a dead connection is found within an attempt")
	assert.GreaterOrEqual(t, transport.MaxIdleConnsPerHost, 64)
	assert.NotNil(t, transport.Proxy)
	assert.False(t, transport.DisableCompression)
	assert.False(t, transport.DisableKeepAlives)
	assert.EqualValues(t, 256<<10, transport.MaxResponseHeaderBytes)
	assert.Equal(t, 10*time.Second, transport.TLSHandshakeTimeout)
	assert.Equal(t, 90*time.Second, transport.IdleConnTimeout)
	assert.Equal(t, 10*time.Second, newDialer().Timeout)
	assert.Equal(t, 15*time.Second, newDialer().KeepAlive)
}
