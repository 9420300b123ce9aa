//! The whole terminal: lines shown in it, keys read from it, and left as it was at the end.

use std::io::{Write, stdout};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use unicode_width::UnicodeWidthChar;

use super::view::{Line, Look};
use crate::error::Error;

/// What a key asks for.
pub(crate) enum Key {
    /// To end.
    End,
    /// To show lines that are further down.
    Down(usize),
    /// To show lines that are further up.
    Up(usize),
    /// To show columns that are further to the left.
    Left,
    /// To show columns that are further to the right.
    Right,
    /// To sort the volumes by something else.
    Sort,
    /// To say what keys do, or to stop saying it.
    Help,
    /// The terminal has another size.
    Resized,
    /// Nothing was asked.
    None,
}

/// Columns by which tables move sideways.
const SIDEWAYS: usize = 8;

/// Which part of the lines is shown.
#[derive(Default)]
pub(crate) struct Scrolled {
    line: usize,
    column: usize,
}

impl Scrolled {
    /// Follows a key.
    pub(crate) fn follow(&mut self, key: &Key) {
        match *key {
            Key::Down(lines) => self.line = self.line.saturating_add(lines),
            Key::Up(lines) => self.line = self.line.saturating_sub(lines),
            Key::Right => self.column = self.column.saturating_add(SIDEWAYS),
            Key::Left => self.column = self.column.saturating_sub(SIDEWAYS),
            Key::End | Key::Sort | Key::Help | Key::Resized | Key::None => {}
        }
    }
}

/// The terminal, until dropped.
pub(crate) struct Screen {
    is_left: bool,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// It cannot be taken over.
    pub(crate) fn new() -> Result<Screen, Error> {
        terminal::enable_raw_mode()?;
        let screen = Screen { is_left: false };
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Columns of the terminal.
    ///
    /// # Errors
    /// The terminal does not say.
    pub(crate) fn width(&self) -> Result<usize, Error> {
        Ok(terminal::size()?.0.into())
    }

    /// Shows as many lines as there is room for, and as much of them. `scrolled` is set to what
    /// there is: nothing comes after the last line and the last column.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(crate) fn show(&mut self, lines: &[Line], scrolled: &mut Scrolled) -> Result<(), Error> {
        let (width, height) = terminal::size()?;
        let (width, height) = (usize::from(width), usize::from(height));
        scrolled.line = scrolled.line.min(lines.len().saturating_sub(height));
        let tables = lines.iter().filter(|line| line.fixed.is_some());
        let widest = tables.map(|line| line.text.chars().count()).max().unwrap_or(0);
        scrolled.column = scrolled.column.min(widest.saturating_sub(width));
        let from = scrolled.line;
        let mut out = stdout().lock();
        queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (row, line) in lines.iter().skip(from).take(height).enumerate() {
            queue!(out, MoveTo(0, row as u16), ResetColor, SetAttribute(Attribute::Reset))?;
            match line.look {
                Look::Plain => {}
                Look::Strong => queue!(out, SetAttribute(Attribute::Bold))?,
                Look::Soft => queue!(out, SetAttribute(Attribute::Dim))?,
                Look::Bad => queue!(out, SetForegroundColor(Color::Red))?,
            }
            let skipped = line.fixed.map(|fixed| (fixed, scrolled.column));
            write!(out, "{}", fitting(&line.text, skipped, width))?;
            queue!(out, SetAttribute(Attribute::Reset), Clear(ClearType::UntilNewLine))?;
        }
        if lines.len() - from < height {
            queue!(out, MoveTo(0, (lines.len() - from) as u16), Clear(ClearType::FromCursorDown))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()?;
        Ok(())
    }

    /// What was asked since the last time; does not wait.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(crate) fn key(&mut self) -> Result<Key, Error> {
        if !poll(Duration::ZERO)? {
            return Ok(Key::None);
        }
        let page = usize::from(terminal::size()?.1.saturating_sub(2).max(1));
        Ok(match read()? {
            Event::Resize(..) => Key::Resized,
            Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
                KeyCode::Char('q') | KeyCode::Esc => Key::End,
                KeyCode::Down | KeyCode::Char('j') => Key::Down(1),
                KeyCode::Up | KeyCode::Char('k') => Key::Up(1),
                KeyCode::PageDown | KeyCode::Char(' ') => Key::Down(page),
                KeyCode::PageUp => Key::Up(page),
                KeyCode::Right | KeyCode::Char('l') => Key::Right,
                KeyCode::Left | KeyCode::Char('h') => Key::Left,
                KeyCode::Char('s') => Key::Sort,
                KeyCode::Char('?') => Key::Help,
                KeyCode::Home => Key::Up(usize::MAX),
                KeyCode::End => Key::Down(usize::MAX / 2),
                _ => Key::None,
            },
            _ => Key::None,
        })
    }

    /// Gives the terminal back as it was.
    pub(crate) fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_left, true) {
            // A terminal that is gone needs nothing.
            let _ = execute!(stdout(), Show, LeaveAlternateScreen);
            let _ = terminal::disable_raw_mode();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// As much of a text as fits into so many columns. `skipped`: behind so many characters, so many
/// are left out. A text that goes on ends with `>`.
fn fitting(text: &str, skipped: Option<(usize, usize)>, columns: usize) -> String {
    let (fixed, skip) = skipped.unwrap_or_default();
    let shown = text.chars().take(fixed).chain(text.chars().skip(fixed + skip));
    let (mut fits, mut used) = (String::new(), 0);
    for c in shown {
        let width = c.width().unwrap_or(0);
        if used + width > columns {
            // The mark takes the place of the last character.
            if let Some(last) = fits.pop() {
                let gap = last.width().unwrap_or(0).saturating_sub(1);
                fits.extend(std::iter::repeat_n(' ', gap).chain(['>']));
            }
            break;
        }
        used += width;
        fits.push(c);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn what_is_cut_is_marked_and_can_be_moved() {
        assert_eq!(fitting("ab", None, 80), "ab");
        assert_eq!(fitting("abc", None, 2), "a>");
        assert_eq!(fitting("abc", None, 3), "abc");
        // Wide characters take two columns.
        assert_eq!(fitting("\u{4e2d}\u{6587}", None, 3), " >");
        assert_eq!(fitting("\u{4e2d}\u{6587}", None, 4), "\u{4e2d}\u{6587}");
        assert_eq!(fitting("name 1 2 3", Some((5, 2)), 80), "name 2 3");
        assert_eq!(fitting("name 1 2 3 4", Some((5, 2)), 8), "name 2 >");
        assert_eq!(fitting("name", Some((5, 2)), 8), "name");
        assert_eq!(fitting("abc", None, 0), "");
    }
}
