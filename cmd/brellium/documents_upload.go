package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newDocumentsUpload(a *app) *cobra.Command {
	u := &documentsUpload{app: a}
	cmd := &cobra.Command{
		Use:   "upload DIR|FILE…",
		Short: "Upload files to be audited",
		Long: `Uploads files, and all files in folders and their subfolders, except hidden ones.

The id of a document is made from its file, so running the same command again
sends only the files that have not arrived and creates no document twice. The
result of each file is printed as a table, or with --json as JSON lines.

--failed FILE lists, with mode 0600, the paths of the files that have not arrived:
those of this run and of earlier ones. It is removed when there are none, and is
itself never uploaded. --from FILE uploads the files that it lists; one that no
longer exists is a failed file, and the others are uploaded.`,
		Example: `  brellium documents upload notes/
  brellium documents upload --from upload-failed.txt`,
		RunE: func(cmd *cobra.Command, args []string) error { return u.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&u.from, "from", "", "upload the files whose paths are the lines of `FILE` (- for standard input)")
	flags.StringVar(&u.failed, "failed", "upload-failed.txt", "keep the paths of files that have not arrived in `FILE`")
	flags.StringVar(&u.docType, "doc-type", "", "the document `type` of all files")
	flags.IntVar(&u.concurrency, "concurrency", 4, "how many files are sent concurrently, at most 64")
	flags.BoolVar(&u.asJSON, "json", false, "print JSON lines")
	return cmd
}

type documentsUpload struct {
	*app
	from, failed, docType string
	concurrency           int
	asJSON                bool
}

type uploadRow struct {
	File       string `json:"file"`
	Result     string `json:"result"`
	DocumentID string `json:"document_id,omitempty"`
	Error      string `json:"error,omitempty"`
}

func (u *documentsUpload) run(cmd *cobra.Command, args []string) error {
	if u.concurrency < 1 || u.concurrency > 64 {
		return usage("--concurrency must be from 1 to 64.")
	}
	paths, err := u.collect(args)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return usage("There are no files to upload.")
	}
	if err := writable(u.failed); err != nil {
		return err
	}
	if _, err := u.earlier(); err != nil {
		return err
	}
	all := make([]brellium.UploadResult, len(paths)) // files that are gone have failed
	var files []brellium.UploadFile
	var places []int // of the files among the paths
	var total int64
	kinds := map[string]int{}
	for i, path := range paths {
		file, err := brellium.FileFromPath(path)
		if err != nil && u.from == "" {
			return usage("%s cannot be uploaded: it is not a readable regular file.", clean(path))
		}
		if err != nil {
			all[i] = brellium.UploadResult{Status: brellium.UploadFailed, Err: err}
			continue
		}
		file.DocType = u.docType
		files, places = append(files, file), append(places, i)
		total += file.Size
		kinds[cmp.Or(strings.ToLower(strings.TrimPrefix(filepath.Ext(path), ".")), "no extension")]++
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	if gone := len(paths) - len(files); gone > 0 {
		parts = append(parts, fmt.Sprintf("and %d that cannot be found", gone))
	}
	u.note("%s, %s (%s).", count(len(files), "file"), size(total), strings.Join(parts, ", "))
	u.resume = "Run the same command again to send the rest."

	results, err := client.Documents.Upload(cmd.Context(), files, brellium.UploadOptions{
		Concurrency: u.concurrency,
		OnProgress: func(p brellium.UploadProgress) {
			text := fmt.Sprintf("%d of %s", p.FilesDone, count(p.Files, "file"))
			if p.FilesFailed > 0 {
				text += fmt.Sprintf(", %d failed", p.FilesFailed)
			}
			u.progress(text, p.BytesDone, max(p.Bytes, 1), true)
		},
	})
	u.endProgress()
	if results == nil {
		return err
	}
	for i, r := range results {
		all[places[i]] = r
	}
	return u.report(paths, all, err)
}

// report prints the results, writes the list of failed files, and returns the
// command's error.
func (u *documentsUpload) report(paths []string, results []brellium.UploadResult, uploadErr error) error {
	counts := map[brellium.UploadStatus]int{}
	items := make([]uploadRow, len(results))
	var missing []string
	arrived := map[string]bool{}
	var limits error // the first error of a file that has an exit code of its own
	for i, r := range results {
		counts[r.Status]++
		items[i] = uploadRow{File: paths[i], Result: string(r.Status), DocumentID: r.DocumentID}
		if r.Status == brellium.UploadStored || r.Status == brellium.UploadAlreadyThere {
			arrived[absolute(paths[i])] = true
			continue
		}
		missing = append(missing, absolute(paths[i]))
		if r.Err != nil && r.Status == brellium.UploadFailed {
			items[i].Error = uploadReason(r.Err)
		}
		if code, _ := explain(r.Err); limits == nil && code > exitUsage {
			limits = r.Err
		}
	}
	printErr := rows(u.output, u.asJSON, []string{"FILE", "RESULT", "DOCUMENT", "ERROR"}, items,
		func(r uploadRow) []string { return []string{r.File, r.Result, r.DocumentID, r.Error} })
	u.note("%s: %d stored, %d already there, %d failed, %d not started.", count(len(results), "file"),
		counts[brellium.UploadStored], counts[brellium.UploadAlreadyThere], counts[brellium.UploadFailed], counts[brellium.UploadNotStarted])
	if err := u.keep(arrived, missing); err != nil {
		return errors.Join(err, uploadErr)
	}
	if len(missing) == 0 {
		return errors.Join(printErr, uploadErr)
	}
	again := fmt.Sprintf("run the same command again, or upload them with --from %s", u.failed)
	if limits != nil {
		code, text := explain(limits)
		return &failure{code, strings.TrimSuffix(text, ".") + "; then " + again + "."}
	}
	return partial("%s did not arrive; %s.", count(len(missing), "file"), again)
}

// earlier returns the list that earlier runs have left. It has absolute paths
// alone, so that another file is not taken for one.
func (u *documentsUpload) earlier() ([]string, error) {
	if !replaceable(u.failed) { // such as /dev/null
		return nil, nil
	}
	f, err := os.Open(u.failed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	paths, err := pathsIn(f)
	if err != nil || slices.ContainsFunc(paths, func(path string) bool { return !filepath.IsAbs(path) }) {
		return nil, usage("%s is not a list of this command; name another file with --failed.", clean(u.failed))
	}
	return paths, nil
}

// keep updates the list of files that have not arrived.
func (u *documentsUpload) keep(arrived map[string]bool, missing []string) error {
	list, err := u.earlier()
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(path string) bool { return arrived[path] })
	if list = unique(append(list, missing...)); len(list) > 0 || !replaceable(u.failed) {
		return saveFile(u.failed, []byte(strings.Join(append(list, ""), "\n")))
	}
	if err := os.Remove(u.failed); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// absolute returns the path of a file for every current folder.
func absolute(path string) string {
	if result, err := filepath.Abs(path); err == nil {
		return result
	}
	return path
}

// uploadReason says why a file did not arrive.
func uploadReason(err error) string {
	var upload *brellium.UploadError
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &upload) && upload.StatusCode > 0:
		return strings.TrimSpace(fmt.Sprintf("storage responded with HTTP %d %s", upload.StatusCode, upload.Code))
	case errors.As(err, &upload) && upload.Err != nil:
		err = upload.Err
	}
	_, text := explain(err)
	return text
}

// collect returns the paths of the files to upload.
func (u *documentsUpload) collect(args []string) (paths []string, err error) {
	if (u.from == "") == (len(args) == 0) {
		return nil, usage("Name files or folders, or use --from FILE.")
	}
	if u.from != "" {
		return u.listed()
	}
	for _, arg := range args {
		err := filepath.WalkDir(arg, func(path string, entry fs.DirEntry, err error) error {
			if err != nil { // entry may be nil
				return err
			}
			hidden := strings.HasPrefix(entry.Name(), ".") && path != arg
			switch {
			case hidden && entry.IsDir():
				return filepath.SkipDir
			case path != arg && absolute(path) == absolute(u.failed), path != arg && u.credentials != "" && absolute(path) == absolute(u.credentials):
				// Files of this command itself, in the folder that is uploaded.
			case path == arg && !entry.IsDir() || !hidden && entry.Type().IsRegular():
				paths = append(paths, path)
			}
			return nil
		})
		if err != nil {
			return nil, usage("%s", fileError(err))
		}
	}
	return unique(paths), nil
}

// listed returns the paths in the file of --from.
func (u *documentsUpload) listed() (paths []string, err error) {
	var r io.Reader = u.in
	if u.from != "-" {
		f, err := os.Open(u.from)
		if err != nil {
			return nil, usage("%s", fileError(err))
		}
		defer f.Close()
		r = f
	}
	paths, err = pathsIn(r)
	return unique(paths), err
}

// pathsIn returns the lines of a list of paths.
func pathsIn(r io.Reader) (paths []string, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if path := strings.TrimRight(lines.Text(), "\r"); path != "" {
			paths = append(paths, path)
		}
	}
	return paths, lines.Err()
}
