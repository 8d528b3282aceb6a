package e2e_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
	"github.com/brellium/brellium-go/internal/wire"
)

// The storage host fails in every way at random, and the upload is interrupted five
// times. In the end every document exists once, every file has arrived whole,
// and none was sent again after it had arrived.
func TestUploadOf200FilesThroughFaultsAndFiveInterruptions(t *testing.T) {
	const files, interruptions = 200, 5
	dir := t.TempDir()
	sums := make(map[string]string, files)
	for i := range files {
		name := "note-" + strconv.Itoa(i) + ".pdf"
		data := testkit.Content(i, 2_000+97*i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		sums[name] = testkit.Digest(data)
	}
	for _, seed := range []uint64{1, 2, 3} {
		t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chance := rand.New(rand.NewPCG(seed, 7))
				emu := brelliumtest.New(brelliumtest.WithSeed(seed), brelliumtest.WithUploadURLLifetime(30*time.Second),
					brelliumtest.WithLatency(func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(200)) * time.Millisecond }))
				emu.Inject(brelliumtest.OpDocumentPut,
					brelliumtest.Status(500, "InternalError").Sometimes(0.06).Forever(),
					brelliumtest.Status(503, "SlowDown").Sometimes(0.06).Forever(),
					testkit.ExpiredURL().Sometimes(0.04).Forever(),
					brelliumtest.DropReading().Sometimes(0.06).Forever(),
					brelliumtest.DropBefore().Sometimes(0.04).Forever(),
					brelliumtest.DropAfter().AsReset().Sometimes(0.04).Forever(),
					brelliumtest.StallHeaders(0).Sometimes(0.02).Forever(),
					brelliumtest.OK().SlowRead(20*time.Second).Sometimes(0.08).Forever(),
					brelliumtest.OK().Delay(time.Hour).Sometimes(0.02).Forever(),
				)
				emu.Inject(brelliumtest.OpDocumentCreate,
					brelliumtest.Status(503, "UNAVAILABLE").AfterWork().Sometimes(0.1).Forever(),
					brelliumtest.DropAfter().Sometimes(0.1).Forever())

				runs, interrupted := 0, 0
				for done := false; !done; runs++ {
					require.Less(t, runs, 20, "the upload does not finish")
					// As in a new process, all it has is the folder.
					entries, err := os.ReadDir(dir)
					require.NoError(t, err)
					var list []brellium.UploadFile
					for _, entry := range entries {
						file, err := brellium.FileFromPath(filepath.Join(dir, entry.Name()))
						require.NoError(t, err)
						list = append(list, file)
					}
					ctx, interrupt := context.WithCancel(t.Context())
					options := brellium.UploadOptions{BatchSize: 50, IdleTimeout: 8 * time.Second}
					if interrupted < interruptions {
						// At any moment, with files in any state.
						after := time.Duration(1000+chance.IntN(4000)) * time.Millisecond
						timer := time.AfterFunc(after, interrupt)
						defer timer.Stop()
					}
					results, err := testkit.NewClient(t, emu).Documents.Upload(ctx, list, options)
					if ctx.Err() != nil {
						interrupted++
						require.ErrorIs(t, err, context.Canceled)
					}
					interrupt()
					require.Len(t, results, files)
					done = err == nil
				}
				assert.Equal(t, interruptions, interrupted)
				t.Logf("%d runs, %d POSTs, %d PUTs", runs, emu.Count(brelliumtest.OpDocumentCreate), emu.Count(brelliumtest.OpDocumentPut))

				docs := emu.Documents()
				assert.Len(t, docs, files, "every document exists once")
				for _, d := range docs {
					assert.True(t, d.Arrived, d.Filename)
					assert.Equal(t, sums[d.Filename], d.SHA256, d.Filename)
					assert.Equal(t, 1, d.Puts, "%s was sent again after it had arrived", d.Filename)
				}
			})
		})
	}
}

// pipes is a network of one host without a real connection, for virtual time.
type pipes struct{ waiting chan net.Conn }

func (p pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.waiting <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.waiting; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p.waiting); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// More files than connections: those that wait for one are not idle.
// curl/curl#4486, encode/httpx#557, borgbase/vykar#145
func TestUploadOfMoreFilesThanConnectionsWaits(t *testing.T) {
	for name, test := range map[string]struct {
		transport   *http.Transport
		files       int
		took        time.Duration // by storage, for each file
		idleTimeout time.Duration
	}{
		"one connection":         {&http.Transport{MaxConnsPerHost: 1}, 24, 900 * time.Millisecond, time.Second},
		"the built-in transport": {wire.NewTransport(), 500, 1500 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New(brelliumtest.WithStorageURL("http://127.0.0.1:2"))
				network := pipes{make(chan net.Conn)}
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPut {
						time.Sleep(test.took)
					}
					emu.Handler().ServeHTTP(w, r)
				})}
				go func() { _ = server.Serve(network) }()
				test.transport.DialContext = network.DialContext
				defer func() {
					test.transport.CloseIdleConnections()
					_ = server.Close()
				}()
				client, err := brellium.NewClient(brellium.WithBaseURL("http://localhost:1"), testkit.WithTransport(test.transport),
					brellium.WithClientCredentials(emu.ClientID, emu.ClientSecret))
				require.NoError(t, err)
				files := make([]brellium.UploadFile, test.files)
				for i := range files {
					files[i] = brellium.FileFromBytes(strconv.Itoa(i)+".pdf", testkit.Content(i, 1000))
				}
				results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{Concurrency: test.files, IdleTimeout: test.idleTimeout})
				require.NoError(t, err)
				for _, r := range results {
					assert.Equal(t, 1, r.Attempts)
				}
			})
		})
	}
}

// A transport that calls no trace has a connection when it reads the body.
func TestIdleTimeoutOfATransportWithoutATrace(t *testing.T) {
	for name, test := range map[string]struct {
		size int
		put  func(ctx context.Context, body io.Reader) error
		took time.Duration
		idle bool
	}{
		"waits for a connection": {1000, func(_ context.Context, body io.Reader) error {
			time.Sleep(time.Hour)
			_, err := io.Copy(io.Discard, body)
			return err
		}, time.Hour, false},
		"stops in the body": {1000, func(ctx context.Context, body io.Reader) error {
			_, _ = body.Read(make([]byte, 10))
			<-ctx.Done()
			return ctx.Err()
		}, 10 * time.Second, true},
		"does not respond": {1000, func(ctx context.Context, body io.Reader) error {
			_, _ = io.Copy(io.Discard, body)
			<-ctx.Done()
			return ctx.Err()
		}, 10 * time.Second, true},
		"does not respond to an empty file": {0, func(ctx context.Context, _ io.Reader) error {
			<-ctx.Done()
			return ctx.Err()
		}, 10 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				client := testkit.NewClient(t, emu, testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					if r.Method != http.MethodPut {
						return emu.Transport().RoundTrip(r)
					}
					if err := test.put(r.Context(), r.Body); err != nil {
						return nil, err
					}
					return testkit.Reply(200, nil, ""), nil
				})))
				begun := time.Now()
				file := brellium.FileFromBytes("a.pdf", testkit.Content(0, test.size))
				_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{IdleTimeout: 10 * time.Second}, brellium.WithMaxRetries(0))
				if test.idle {
					require.ErrorContains(t, err, "idle timeout")
				} else {
					require.NoError(t, err)
				}
				assert.GreaterOrEqual(t, time.Since(begun), test.took)
				assert.LessOrEqual(t, time.Since(begun), test.took+test.took/4) // it is checked four times
			})
		})
	}
}
