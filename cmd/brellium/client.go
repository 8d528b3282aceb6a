package main

import (
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/brellium/brellium-go"
)

// options adds the options of every client.
func (a *app) options(opts ...brellium.ClientOption) []brellium.ClientOption {
	opts = append(opts, brellium.WithUserAgent("brellium-command/"+brellium.Version()))
	if a.debug {
		opts = append(opts, brellium.WithLogger(slog.New(slog.NewTextHandler(a, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	}
	return opts
}

// client returns a client with the credentials of --credentials, or else of the
// environment.
func (a *app) client(opts ...brellium.ClientOption) (*brellium.Client, error) {
	opts = a.options(opts...)
	if a.credentials != "" {
		values, err := readCredentials(a.credentials)
		if err != nil {
			return nil, err
		}
		switch {
		case values["ACCESS_TOKEN"] != "":
			opts = append(opts, brellium.WithAccessToken(values["ACCESS_TOKEN"]))
		case values["CLIENT_ID"] != "" && values["CLIENT_SECRET"] != "":
			opts = append(opts, brellium.WithClientCredentials(values["CLIENT_ID"], values["CLIENT_SECRET"]))
		default:
			return nil, &failure{exitCredentials, "The credentials file has neither BRELLIUM_CLIENT_ID and BRELLIUM_CLIENT_SECRET nor BRELLIUM_ACCESS_TOKEN."}
		}
		if values["BASE_URL"] != "" {
			opts = append(opts, brellium.WithBaseURL(values["BASE_URL"]))
		}
	}
	return brellium.NewClient(opts...)
}

// baseURL returns the base URL that client uses.
func (a *app) baseURL() string {
	if a.credentials != "" {
		if values, err := readCredentials(a.credentials); err == nil && values["BASE_URL"] != "" {
			return values["BASE_URL"]
		}
	}
	if base := os.Getenv("BRELLIUM_BASE_URL"); base != "" {
		return base
	}
	return "https://api.brellium.com"
}

// readCredentials reads lines such as BRELLIUM_CLIENT_ID=…; the names in the
// result have no prefix. Others must not be able to read the file.
func readCredentials(path string) (map[string]string, error) {
	reject := func(text string) error { return &failure{exitCredentials, text} }
	info, err := os.Stat(path)
	if err != nil {
		return nil, reject(fileError(err))
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return nil, reject("Other users may read the credentials file (mode " + mode.String() + `); run "chmod 600" on it.`)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, reject(fileError(err))
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		name, value, ok := strings.Cut(line, "=")
		if line == "" || line[0] == '#' || !ok {
			continue
		}
		name = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "BRELLIUM_")
		values[name] = strings.Trim(strings.TrimSpace(value), `"'`)
	}
	return values, nil
}
